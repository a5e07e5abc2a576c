"""The Parquet file of a table, and the index of its keys."""
