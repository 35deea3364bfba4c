# Check test pods (should show AKS node assignments)
kubectl get pods -l app.kubernetes.io/name=gpu-scheduler-check -o wide

# View test pod logs to see node assignments and CUDA devices
kubectl logs gpu-scheduler-check-0  # Should show: aks-workerpool-25338008-vmss000000 with CUDA 0,1
kubectl logs gpu-scheduler-check-1  # Should show: aks-workerpool-25338008-vmss000001 with CUDA 2
kubectl logs gpu-scheduler-check-2  # Should show: aks-workerpool-25338008-vmss000003 with CUDA 0,1,2
