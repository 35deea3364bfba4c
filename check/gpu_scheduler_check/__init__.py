"""The check workload: reports at an interval on which node it runs and which GPUs it sees.

It imports the standard library only and nothing of the scheduler, so that a fault of the scheduler cannot change the
report.
"""
