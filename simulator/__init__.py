"""The simulator: scheduler replicas in one process, with virtual time, an API server in memory, and seeded faults.

LAW: nothing sleeps, and every random number follows from the seed: one seed gives one trace, bit for bit. The simulator
imports the package gpu_scheduler; nothing in the package imports the simulator.
"""
