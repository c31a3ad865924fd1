"""What OpenShift's build pod does with an uploaded context: buildah builds it, and the nodes get it under its reference.

    python -m e2e.push_image CONTEXT DOCKERFILE REPOSITORY TAG     the last line is {"digest": "sha256:..."}
    python -m e2e.push_image --forget REPOSITORY                   removes what was built for it

A process of its own, because the embedded cluster's package takes the cluster's name from the environment. Base image and packages
are this machine's (trainer_image.py): the cluster of the test reaches no registry. A registry would hand the image to the nodes
under the same reference when a pod asks for it; here they have it before.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from embedded_cluster.containers import image_store, images, oci
from embedded_cluster.tasks import trainer_image

BUILT = "localhost/trainlab-openshift"


def push(context: Path, dockerfile: str, repository: str, tag: str) -> str:
    """Build and hand out; returns the digest of the manifest."""
    ref = f"{BUILT}:{tag}"
    # the folders of the trainer image's layers, which this one shares
    with images.exclusive_build():
        trainer_image.build_stage("final", ref, context, dockerfile)
        images.export(ref, trainer_image.LAYOUT)
        digest = str(oci.manifest_of(trainer_image.LAYOUT, ref)["digest"])
        images.import_oci(trainer_image.LAYOUT, f"{repository}@{digest}")
    return digest


def forget(repository: str) -> None:
    """Remove all images of a repository from both stores; running nodes keep theirs until the cluster goes down."""
    with images.exclusive_build():
        image_store.forget([ref for ref in image_store.refs() if ref.startswith(f"{repository}@")])
        for ref in images.buildah("images", "--format", "{{.Name}}:{{.Tag}}", quiet=True).split():
            if ref.startswith(f"{BUILT}:"):
                images.buildah("rmi", ref, quiet=True)


def main() -> None:
    """Run the command line."""
    if sys.argv[1] == "--forget":
        forget(sys.argv[2])
        return
    context, dockerfile, repository, tag = sys.argv[1:]
    print(json.dumps({"digest": push(Path(context), dockerfile, repository, tag)}))


if __name__ == "__main__":
    main()
