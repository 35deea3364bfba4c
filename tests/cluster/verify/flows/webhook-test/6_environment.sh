# Verify environment variables are set correctly
kubectl exec webhook-test-0 -n gpu-scheduler-tests -- env | grep CUDA
kubectl exec webhook-test-1 -n gpu-scheduler-tests -- env | grep CUDA
kubectl exec webhook-test-2 -n gpu-scheduler-tests -- env | grep CUDA
