"""The nodes of the cluster and their devices.

LAW: this package does not know which pod holds which device.
"""
