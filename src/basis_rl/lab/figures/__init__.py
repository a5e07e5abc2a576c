"""The value-estimation figures of the paper from any record: numbers, pictures, statements."""
