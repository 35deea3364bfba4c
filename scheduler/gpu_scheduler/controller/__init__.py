"""`gpu-scheduler controller`: a pod for each GPUWorkload, and the status of GPUWorkloads and GPUNodes.

LAW: places nothing.
"""
