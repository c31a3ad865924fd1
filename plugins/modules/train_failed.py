"""Documentation of the module train_failed, which removes the failed jobs of a release; the code is plugins/action/train_failed.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: train_failed
short_description: Remove the failed jobs of a release
description:
  - Removes the PyTorchJob or TrainJob and the promotion Job that Helm would leave as they are, and not create again.
  - The promotion Job is removed with its training job, because it waits only for a limited time.
version_added: 0.1.0
extends_documentation_fragment: [trainlab.rhoai.cluster, trainlab.rhoai.release]
author:
  - The trainlab authors (@trainlab)
"""

EXAMPLES = r"""
- name: Remove failed jobs
  trainlab.rhoai.train_failed:
    kubeconfig: ~/.kube/config
    namespace: trainlab-demo
    release: survival
"""

RETURN = r"""
objects:
  description: Kind, namespace and name of each that was removed.
  returned: success
  type: list
  elements: str
present:
  description: Kind and name of each job of the release, those that were removed included.
  returned: success
  type: list
  elements: str
"""
