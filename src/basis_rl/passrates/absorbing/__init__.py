"""Rewards of training runs, added to a table."""
