"""The HTTP API: OpenAI's calls and strop's own, over the services below."""
