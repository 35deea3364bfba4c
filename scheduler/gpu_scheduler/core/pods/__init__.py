"""What a pod is and what it asks for: the map, the index, a count, its environment, its constraints.

LAW: knows no node and no other pod.
"""
