"""Environments: what follows a turn."""
