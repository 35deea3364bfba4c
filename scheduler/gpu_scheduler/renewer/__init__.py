"""`gpu-scheduler renew`: issues the webhook's certificate anew before it ends, signed by our CA.

LAW: it writes the serving Secret alone.
"""
