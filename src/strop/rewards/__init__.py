"""Scoring of rollouts by the user's reward functions, in worker processes of their own."""
