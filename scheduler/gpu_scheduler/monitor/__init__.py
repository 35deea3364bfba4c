"""`gpu-scheduler monitor`: reads the devices of one node and publishes them.

LAW: writes its own node only.
"""
