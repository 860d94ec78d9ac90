"""Sample data sets, made by seeded generators."""
