"""Lint: what is wrong with manifests, found in their text and, if asked for, against the cluster.

LAW: pure. A rule is one function that yields findings. What admission and scheduler would say is asked of their own
code, and has their words.
"""
