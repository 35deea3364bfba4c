"""`gpu-scheduler monitor`: reads the devices of one node and publishes them.

LAW: a monitor writes only the objects of its own node.
"""
