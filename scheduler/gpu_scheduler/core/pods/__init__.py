"""A pod and its request: the map, the index, a count, its environment, its constraints.

LAW: this package knows no node, and reads one pod without any other pod.
"""
