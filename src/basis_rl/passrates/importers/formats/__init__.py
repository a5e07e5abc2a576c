"""One file a format: how it is recognised and what its rows mean."""
