"""The commands that people call.

LAW: what a command needs is imported when it runs.
"""
