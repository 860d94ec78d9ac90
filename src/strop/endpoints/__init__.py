"""Calls to OpenAI-compatible servers: one client, one way to retry, one list of causes of failure.

Judges, remote models in evaluations and the list of a provider's models all go through here:

- `client`: `open_client` makes the HTTP client, `model_names` lists what a server offers.
- `chat`: `ChatEndpoint.complete` sends a chat completion, retries what may pass within a time
  limit, and leaves out what a server does not understand.
- `problems`: what went wrong with a call, and whether another try can help.
- `addresses`, `transport`: allowed addresses for URLs from users.

Its modules need the extra `graders`. Code that must work without it imports them when they are needed.
"""
