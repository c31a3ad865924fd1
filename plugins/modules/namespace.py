"""Documentation of the module namespace, which makes and removes a namespace; the code is plugins/action/namespace.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: namespace
short_description: Make a namespace, or ask for a Project, or remove what was so made
description:
  - A user who may not create namespaces asks OpenShift for a Project, and is its administrator then.
  - State absent removes a namespace that this module made, and no other.
version_added: 0.1.0
options:
  name:
    description: Name of the namespace.
    type: str
    required: true
  state:
    description: Whether it is to be there.
    type: str
    choices: [present, absent]
    default: present
  labels:
    description: Labels that it is to have; a user who may not set them is told the command that does.
    type: dict
    default: {}
  makes:
    description: Resources, as C(networkpolicies.networking.k8s.io), of which the result says whether the user may make them in it.
    type: list
    elements: str
    default: []
  timeout:
    description: Seconds until a removed namespace has to be gone.
    type: float
    default: 120
extends_documentation_fragment: trainlab.rhoai.cluster
author:
  - The trainlab authors (@trainlab)
"""

EXAMPLES = r"""
- name: A namespace of ours
  trainlab.rhoai.namespace:
    kubeconfig: ~/.kube/config
    name: trainlab-demo
    labels: {pod-security.kubernetes.io/enforce: restricted}
    makes: [resourcequotas]
"""

RETURN = r"""
ours:
  description: Whether this module made it.
  returned: success
  type: bool
how:
  description: Whether it was there (C(found)), is not there (C(absent)), or is a new C(namespace) or C(project).
  returned: success
  type: str
may_not:
  description: Those of C(makes) that the user may not make in it.
  returned: success
  type: list
  elements: str
notes:
  description: What an administrator has to do, in sentences.
  returned: success
  type: list
  elements: str
"""
