"""Data files: strict JSON Lines, the rows in them, and the order that training takes them in."""
