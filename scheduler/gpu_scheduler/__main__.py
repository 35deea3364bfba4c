"""`python -m gpu_scheduler` is `gpu-scheduler`."""

from gpu_scheduler.cli.main import main

main()
