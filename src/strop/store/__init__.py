"""Storage: run folders, the database, and queries."""
