kubectl apply -f gpu-scheduler-check.yaml
