"""Reward functions to start from: one file each, complete, to be changed by whoever takes it."""
