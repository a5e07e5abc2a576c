"""Looking at a table, and checking it against a data set and a run."""
