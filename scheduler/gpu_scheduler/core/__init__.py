"""The decision: which device of which node a pod gets, or why it waits.

LAW: standard library only; no I/O, clock, logging or environment. Time is an argument. Functions take values and return
a decision.
"""
