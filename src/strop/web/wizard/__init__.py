"""A new job in five steps: a draft on the server, and the pages that fill it in."""
