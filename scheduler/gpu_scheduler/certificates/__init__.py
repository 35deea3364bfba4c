"""`gpu-scheduler renew` and `issue`: keep the webhook's certificate, which our CA signs, in its Secret.

LAW: in a cluster, a CA that is there is never written.
"""
