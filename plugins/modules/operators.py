"""Documentation of the module operators, which installs upstream's operators; the code is plugins/action/operators.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: operators
short_description: Install upstream's operators on any cluster, or remove them
description:
  - Applies the manifests of each, waits until its Deployments are available, and marks all of it with an owner label.
  - An operator of which any part is there without that label is somebody else's; it is left as it is and returned in RV(kept).
  - Removes only what carries the label, and nothing while people have objects of the operators' kinds, or workloads in their namespaces.
version_added: 0.1.0
options:
  names:
    description: The operators, in the order of their installation.
    type: list
    elements: str
    required: true
  folder:
    description: Folder with NAME.yaml for each, as C(cluster/python cluster manifests) writes them.
    type: path
    required: true
  state:
    description: Whether they are installed or removed.
    type: str
    choices: [present, absent]
    default: present
  cluster_id:
    description: Required UID of the cluster's namespace kube-system; empty checks nothing.
    type: str
    default: ""
  images:
    description: Images by operator that are taken for upstream's, as those of a registry of your own or with a digest.
    type: dict
    default: {}
  remove_data:
    description: With O(state=absent), also delete what people made of the operators' kinds, for good.
    type: bool
    default: false
  timeout:
    description: Seconds to wait until all are available, or until each object is gone.
    type: float
    default: 600
  poll:
    description: Seconds between polls.
    type: float
    default: 2
extends_documentation_fragment: trainlab.rhoai.cluster
author:
  - The trainlab authors (@trainlab)
"""

EXAMPLES = r"""
- name: Install two operators
  trainlab.rhoai.operators:
    kubeconfig: ~/.kube/config
    folder: manifests
    names: [training-operator, kserve]
"""

RETURN = r"""
objects:
  description: A line for each object that was changed or removed.
  returned: success
  type: list
  elements: str
kept:
  description: Sentences about what is not ours and was left as it is.
  returned: success
  type: list
  elements: str
"""
