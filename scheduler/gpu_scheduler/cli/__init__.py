"""The command line: it starts the four programs, and its verbs print a snapshot of the cluster or change it.

LAW: a command imports what it needs only when it runs.
"""
