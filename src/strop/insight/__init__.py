"""What the curves of a run mean: rules over stored facts. Pure functions."""
