"""Completers over HTTP: they turn a conversation into assistant turns. The local one is `policy.completer`."""
