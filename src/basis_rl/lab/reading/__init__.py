"""What becomes of each kind of source when a record is read."""
