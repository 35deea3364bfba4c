"""The whole loop in one process without a network: virtual time, an API server in memory, and faults by a seed.

LAW: nothing sleeps and nothing is random but by the seed; one seed gives one trace, bit for bit. The simulator imports
the package gpu_scheduler; nothing in the package imports the simulator.
"""
