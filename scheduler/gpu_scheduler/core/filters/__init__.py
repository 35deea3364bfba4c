"""Filters: why a pod cannot have a line of its map or a node. One function checks one condition.

LAW: a filter reads and changes nothing.
"""
