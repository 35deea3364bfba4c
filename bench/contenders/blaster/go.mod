module gpu-scheduler.invalid/blaster

go 1.25.0
