"""What is true of pods, maps and GPUs, whoever asks.

LAW: standard library only; no I/O, clock, logging or environment. Time comes in as an argument, and decisions go out
as values.
"""
