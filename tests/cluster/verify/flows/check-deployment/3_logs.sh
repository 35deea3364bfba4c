for pod in $(kubectl get pods -l app.kubernetes.io/name=gpu-scheduler-check --sort-by=.spec.nodeName -o name); do
  kubectl logs $pod
done
