module gpu-scheduler.invalid/pause

go 1.26.8
