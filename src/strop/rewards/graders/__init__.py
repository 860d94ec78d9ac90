"""Graders in OpenAI's shapes, as reward functions."""
