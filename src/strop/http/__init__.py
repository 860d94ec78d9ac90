"""What the API of the server and the model process have in common as HTTP services."""
