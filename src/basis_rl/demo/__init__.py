"""The quickstart: a small real language model trained with one rollout per prompt."""
