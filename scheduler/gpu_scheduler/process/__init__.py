"""What every long-running command shares: settings, signals, watches, servers, logs.

LAW: knows no program.
"""
