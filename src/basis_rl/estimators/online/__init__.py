"""The parts of `basis-online`: prompts, common state, learned variances, population."""
