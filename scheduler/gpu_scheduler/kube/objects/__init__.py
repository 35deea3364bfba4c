"""Structs of what the API server sends, and their translation into values of the core.

LAW: a field that cannot be read costs its own object at most.
"""
