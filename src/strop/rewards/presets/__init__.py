"""Rewards to start from: one file each, complete, to be changed by whoever takes it. `index` lists them."""
