"""`gpu-scheduler controller`: creates a pod for each GPUWorkload and writes the status of GPUWorkloads and GPUNodes.

LAW: the controller places no pod.
"""
