"""Client configuration: address and credentials of a cluster.

LAW: kubeconfig is the one module that imports the Kubernetes client.
"""
