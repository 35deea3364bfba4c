"""Benchmarks: whole schedulers against one fresh control plane after the other, told as ratios within one run."""
