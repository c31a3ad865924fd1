"""The running cluster: namespaces, network, cgroups, kubelets and control plane, and the operators on it."""
