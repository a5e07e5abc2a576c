"""The paper's settings as data, each with the place that says it."""
