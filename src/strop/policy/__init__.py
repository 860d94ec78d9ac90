"""The model side: loading, chat rendering, sampling, log-probabilities, saving."""
