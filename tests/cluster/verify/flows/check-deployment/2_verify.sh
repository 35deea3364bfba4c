kubectl get pods -l app.kubernetes.io/name=gpu-scheduler-check --sort-by=.spec.nodeName -o wide
for pod in $(kubectl get pods -l app.kubernetes.io/name=gpu-scheduler-check --sort-by=.spec.nodeName -o name); do
  kubectl exec $pod -- env | grep CUDA
done
