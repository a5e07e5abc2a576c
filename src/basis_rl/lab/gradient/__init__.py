"""Noise of the policy gradient: rollouts with score gradients, and what baselines do to it."""
