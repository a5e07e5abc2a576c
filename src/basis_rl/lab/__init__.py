"""The laboratory: which baseline suits a record of rewards, and by how much."""
