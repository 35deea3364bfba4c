"""Why a pod cannot have a line of its map or a node: one function a question.

LAW: a filter asks and changes nothing.
"""
