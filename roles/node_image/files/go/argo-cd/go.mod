module gpu-scheduler.invalid/argo-cd

go 1.26.8

// Nothing is built of it: the tests read the CRDs in it.
require github.com/argoproj/argo-cd/v3 v3.5.7
