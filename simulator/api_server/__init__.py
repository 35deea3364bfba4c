"""The API server in memory: its objects, its watches, and the connection of each replica."""
