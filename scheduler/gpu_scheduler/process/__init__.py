"""Common parts of every long-running command: settings, signals, watches, servers, logs.

LAW: depends on no program.
"""
