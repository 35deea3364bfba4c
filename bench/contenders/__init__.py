"""The contenders of the benchmark: schedulers, and the limits that no scheduler can beat."""
