# Check placement and environment variables
kubectl get pod test-gpu-pod -o wide
kubectl exec test-gpu-pod -- env | grep CUDA

# Watch logs to see continuous output
kubectl logs test-gpu-pod -f
