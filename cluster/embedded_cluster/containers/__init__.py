"""Container images: the OCI format, buildah's and containerd's stores, what is loaded into the nodes."""
