"""Documentation of the module train_failed, which names the jobs of a release that failed; the code is plugins/action/train_failed.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: train_failed
short_description: Name the jobs of a release that failed
description:
  - Finds the PyTorchJob or TrainJob and the promotion Job that must go before Helm makes them anew.
  - The promotion goes with its training, because it waits for a limited time only.
version_added: 0.1.0
extends_documentation_fragment: [trainlab.rhoai.cluster, trainlab.rhoai.release]
author:
  - The trainlab authors (@trainlab)
"""

EXAMPLES = r"""
- name: Find jobs that failed
  trainlab.rhoai.train_failed:
    kubeconfig: ~/.kube/config
    namespace: trainlab-demo
    release: survival
"""

RETURN = r"""
objects:
  description: C(api_version), C(kind) and C(name) of each.
  returned: success
  type: list
  elements: dict
"""
