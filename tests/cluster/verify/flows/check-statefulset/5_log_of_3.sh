kubectl logs gpu-scheduler-check-3
