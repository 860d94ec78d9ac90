"""Sample data sets, made by seeded generators, each with a reward function that fits."""
