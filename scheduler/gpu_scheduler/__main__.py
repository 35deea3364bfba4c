"""`python -m gpu_scheduler` is `gpu-scheduler`."""

from gpu_scheduler.cli import main

main()
