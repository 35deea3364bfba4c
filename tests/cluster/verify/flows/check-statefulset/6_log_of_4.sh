kubectl logs gpu-scheduler-check-4
