"""The tabs of an experiment."""
