"""Models behind an endpoint: a process of their own, and what the server needs to talk to it."""
