"""The embedded cluster: a real Kubernetes of one to four nodes on this machine, in namespaces; started by ../__main__.py."""
