"""Data files: strict JSON Lines, rows, and the order in which training uses them."""
