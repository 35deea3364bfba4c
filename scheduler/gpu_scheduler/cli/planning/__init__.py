"""What `plan` answers with: the changes that are asked about, the pods that follow, and the decision on each."""
