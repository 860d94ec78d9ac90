"""strop's own routes, under /v1/strop."""
