"""Routes with OpenAI's paths and shapes."""
