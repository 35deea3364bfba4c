# Get comprehensive pod status
kubectl get pods -n gpu-scheduler-tests -o wide

# Check all test pod logs
kubectl logs webhook-test-0 -n gpu-scheduler-tests
kubectl logs webhook-test-1 -n gpu-scheduler-tests  
kubectl logs webhook-test-2 -n gpu-scheduler-tests
