"""`gpu-scheduler driver`: the kubelet's driver of one node's GPUs. It publishes them and prepares claims.

LAW: a driver writes only the ResourceSlices of its own node. A device is prepared for one claim at a time, except for
claims with admin access.
"""
