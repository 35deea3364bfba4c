"""Says exactly which GPU on which node each replica of a workload gets."""
