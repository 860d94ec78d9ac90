"""Diagnosis of a run's curves: rules over stored facts. Pure functions."""
