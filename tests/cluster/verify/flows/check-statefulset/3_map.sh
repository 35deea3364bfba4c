# Verify AKS node mapping
kubectl get statefulset gpu-scheduler-check -o jsonpath='{.spec.template.metadata.annotations.gpu-scheduling-map}'
