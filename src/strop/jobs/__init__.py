"""Training jobs of a server: their queue, and what runs them. `queue` is what clients get to use."""
