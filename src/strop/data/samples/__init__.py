"""Sample data sets from seeded generators, each with a matching reward function."""
