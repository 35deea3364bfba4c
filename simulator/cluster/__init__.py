"""The cluster around the scheduler: its objects, its workload templates, and the actors that change it."""
