# Create a test pod to verify webhook functionality
cat <<EOF | kubectl apply -f -
apiVersion: v1
kind: Pod
metadata:
  name: webhook-test-0
  namespace: gpu-scheduler-tests
  annotations:
    gpu-scheduling-map: "0=node1:0,1"
spec:
  schedulerName: gpu-scheduler
  containers:
  - name: test
    image: busybox
    command: ["sh", "-c", "echo 'CUDA_VISIBLE_DEVICES='$CUDA_VISIBLE_DEVICES; sleep 300"]
EOF
