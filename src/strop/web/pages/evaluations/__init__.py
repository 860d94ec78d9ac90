"""`/evaluations`: models measured on held-out rows, and two of them compared."""
