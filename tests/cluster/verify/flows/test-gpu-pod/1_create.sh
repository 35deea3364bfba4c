# Create a test pod with GPU scheduling annotation for your AKS cluster
cat <<EOF | kubectl apply -f -
apiVersion: v1
kind: Pod
metadata:
  name: test-gpu-pod
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
    command: ["sh", "-c", "while true; do echo 'Pod test-gpu-pod on node: '\$(hostname)' | CUDA_VISIBLE_DEVICES: '\${CUDA_VISIBLE_DEVICES:-'not set'}; sleep 10; done"]
    env:
    - name: NODE_NAME
      valueFrom:
        fieldRef:
          fieldPath: spec.nodeName
EOF
