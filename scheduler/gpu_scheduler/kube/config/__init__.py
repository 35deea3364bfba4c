"""How a cluster is reached.

LAW: kubeconfig is the one module that imports the Kubernetes client.
"""
