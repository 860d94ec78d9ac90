"""GRPO: advantages, packing, losses, the optimizer step and the loop around it."""
