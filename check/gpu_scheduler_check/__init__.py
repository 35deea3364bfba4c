"""The witness: says again and again on which node it runs and which GPUs it sees.

It imports the standard library only and nothing of the scheduler: a witness is worth something
because it has no part in what it tells.
"""
