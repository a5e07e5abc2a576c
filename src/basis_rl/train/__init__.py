"""Training from a configuration file: `basis-rl train`."""
