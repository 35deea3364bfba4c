"""The benchmark: measures schedulers on fresh control planes and reports ratios within one run."""
