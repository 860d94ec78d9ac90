"""Sample data sets from seeded generators."""
