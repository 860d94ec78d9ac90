"""Environments: how a prompt is played to its end."""
