"""The five steps, each drawn by a function of its own."""
