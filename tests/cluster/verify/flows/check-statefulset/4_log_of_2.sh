kubectl logs gpu-scheduler-check-2
