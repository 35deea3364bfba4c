"""Remedies that change what a pod asks for.

LAW: each remedy that edits the text of a pod is worded here. The text of an existing pod cannot be changed.
"""

from functools import lru_cache


@lru_cache(maxsize=1024)
def made_anew(edit: str) -> str:
    """Return the remedy `edit`, and where to make it. Equal remedies of thousands of pods are in memory once."""
    return f"{edit} in the pod's template or manifest, and recreate the pod"
