# Create additional test pods
cat <<EOF | kubectl apply -f -
apiVersion: v1
kind: Pod
metadata:
  name: webhook-test-1
  namespace: gpu-scheduler-tests
  annotations:
    gpu-scheduling-map: |
      0=node1:0,1
      1=node2:2
      2=node3:0,1,2
spec:
  schedulerName: gpu-scheduler
  containers:
  - name: test
    image: busybox
    command: ["sh", "-c", "echo 'Pod 1: CUDA_VISIBLE_DEVICES='$CUDA_VISIBLE_DEVICES; sleep 300"]
---
apiVersion: v1
kind: Pod
metadata:
  name: webhook-test-2
  namespace: gpu-scheduler-tests
  annotations:
    gpu-scheduling-map: |
      0=node1:0,1
      1=node2:2
      2=node3:0,1,2
spec:
  schedulerName: gpu-scheduler
  containers:
  - name: test
    image: busybox
    command: ["sh", "-c", "echo 'Pod 2: CUDA_VISIBLE_DEVICES='$CUDA_VISIBLE_DEVICES; sleep 300"]
EOF
