"""Which nodes fit a count of devices, and in which order.

LAW: all pods of one equivalence class share one ranking of the nodes.
"""
