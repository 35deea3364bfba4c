# Create test pod with GPU mapping for your AKS nodes
kubectl apply -f - <<EOF
apiVersion: v1
kind: Pod
metadata:
  name: gpu-test-0
  annotations:
    gpu-scheduling-map: |
      0=aks-workerpool-25338008-vmss000000:0,1
      1=aks-workerpool-25338008-vmss000001:2
      2=aks-workerpool-25338008-vmss000003:0,1,2
      3=aks-workerpool-25338008-vmss000004:3
spec:
  schedulerName: gpu-scheduler
  containers:
  - name: test
    image: busybox:1.35
    command: ["sh", "-c", "while true; do echo 'Node: '\$(hostname)' | CUDA_VISIBLE_DEVICES: '\${CUDA_VISIBLE_DEVICES}; sleep 10; done"]
---
apiVersion: v1
kind: Pod
metadata:
  name: gpu-test-1
  annotations:
    gpu-scheduling-map: |
      0=aks-workerpool-25338008-vmss000000:0,1
      1=aks-workerpool-25338008-vmss000001:2
      2=aks-workerpool-25338008-vmss000003:0,1,2
      3=aks-workerpool-25338008-vmss000004:3
spec:
  schedulerName: gpu-scheduler
  containers:
  - name: test
    image: busybox:1.35
    command: ["sh", "-c", "while true; do echo 'Node: '\$(hostname)' | CUDA_VISIBLE_DEVICES: '\${CUDA_VISIBLE_DEVICES}; sleep 10; done"]
EOF
