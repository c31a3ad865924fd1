"""A real kube-apiserver for tests, and stand-ins for the operators of an OpenShift; used by tests, molecule and bench."""
