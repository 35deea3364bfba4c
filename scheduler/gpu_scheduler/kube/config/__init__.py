"""Client configuration: address and credentials of a cluster.

LAW: a kubeconfig means here what it means to kubectl; what we cannot do as kubectl does is refused with a sentence.
"""
