"""Evaluation: the same rollouts as in training, without a gradient."""
