"""Structs of the API server's objects, and their translation into values of the core.

LAW: a field that cannot be decoded makes at most its own object unreadable.
"""
