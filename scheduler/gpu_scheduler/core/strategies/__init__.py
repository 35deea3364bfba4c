"""Which nodes fit a count of devices, and in which order.

LAW: pods of one equivalence class are ranked together.
"""
