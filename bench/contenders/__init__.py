"""Those who are measured: each places the pods of a workload, or shows what no scheduler can beat."""
