"""The invariants, checked against the API server's objects alone.

LAW: nothing of the package gpu_scheduler is imported here, neither directly nor through another module.
"""
