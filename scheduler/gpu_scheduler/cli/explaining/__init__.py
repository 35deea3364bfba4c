"""Why a pod waits, or why it is where it is: what is read of the cluster, the data, and the screen.

LAW: the core explains. Data are made from its values alone, and the screen from the data.
"""
