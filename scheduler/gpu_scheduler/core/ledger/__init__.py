"""Which pod holds which device and which index, and what is left of each node.

LAW: everything is derived from pods and nodes; nothing is stored elsewhere.
"""
