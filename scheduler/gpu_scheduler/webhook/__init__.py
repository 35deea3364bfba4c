"""`gpu-scheduler webhook`: completes or refuses pods as they are created.

LAW: asks no API server.
"""
