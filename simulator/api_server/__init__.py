"""The API server in memory: its objects, its watches, and each replica's connection to it."""
