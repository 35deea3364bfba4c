"""The cluster around the scheduler: its objects, the templates of its workloads, and who changes them."""
