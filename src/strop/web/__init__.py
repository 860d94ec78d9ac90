"""The pages: NiceGUI on the server's own application, dense panels as components that read the API."""
