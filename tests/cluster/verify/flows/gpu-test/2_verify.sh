# Check pod placement
kubectl get pods -o wide

# Check environment variables
kubectl exec gpu-test-0 -- env | grep CUDA
kubectl exec gpu-test-1 -- env | grep CUDA

# Watch logs
kubectl logs gpu-test-0 -f
