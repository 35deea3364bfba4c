# Check pod was scheduled to correct node
kubectl get pod webhook-test-0 -n gpu-scheduler-tests -o wide
# Should be on gpu-scheduler-cluster-worker (node1)

# Check environment variable was injected
kubectl logs webhook-test-0 -n gpu-scheduler-tests
# Should show: CUDA_VISIBLE_DEVICES=0,1
