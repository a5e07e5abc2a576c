"""Pictures of the numbers, one module a figure; matplotlib is imported in their functions."""
