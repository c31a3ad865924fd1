"""What is made from package registries: Debian roots, the Python environments, Go and the programs of the cluster."""
