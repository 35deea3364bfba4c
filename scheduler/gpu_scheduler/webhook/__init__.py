"""`gpu-scheduler webhook`: completes or refuses pods as they are created.

LAW: sends no request to the API server.
"""
