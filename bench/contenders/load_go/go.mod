module gpu-scheduler.invalid/load-generator

go 1.25.0
