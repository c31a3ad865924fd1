"""Documentation of the module namespace, which creates and removes a namespace; the code is plugins/action/namespace.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: namespace
short_description: Create a namespace, or request a Project, or remove what it created
description:
  - For a user who may not create namespaces it requests an OpenShift Project, with the user as its administrator.
  - State absent removes a namespace that this module created and in which nothing is left of people or releases, and no other.
version_added: 0.1.0
options:
  name:
    description: Name of the namespace.
    type: str
    required: true
  state:
    description: Whether it should exist.
    type: str
    choices: [present, absent]
    default: present
  labels:
    description: Labels that it should have; a user who may not set them gets the command that does.
    type: dict
    default: {}
  makes:
    description: Resources, e.g. C(networkpolicies.networking.k8s.io), for which the result says whether the user may create them in it.
    type: list
    elements: str
    default: []
  release:
    description: With state absent, the Helm release that goes; what is left of it, as its volumes, is not RV(others).
    type: str
    default: ""
  timeout:
    description: Seconds to wait until a removed namespace is gone.
    type: float
    default: 120
extends_documentation_fragment: trainlab.rhoai.cluster
author:
  - The trainlab authors (@trainlab)
"""

EXAMPLES = r"""
- name: Create a namespace
  trainlab.rhoai.namespace:
    kubeconfig: ~/.kube/config
    name: trainlab-demo
    labels: {pod-security.kubernetes.io/enforce: restricted}
    makes: [resourcequotas]
"""

RETURN = r"""
ours:
  description: Whether this module created it.
  returned: success
  type: bool
how:
  description: Whether it was there (C(found)), is not there (C(absent)), or is a new C(namespace) or C(project).
  returned: success
  type: str
left:
  description: With state absent, what people or releases have in it, in one sentence; empty if nothing.
  returned: success
  type: str
others:
  description: With state absent, whether some of it needs what the role workspace made, and is not of O(release).
  returned: success
  type: bool
may_not:
  description: Those of C(makes) that the user may not create in it.
  returned: success
  type: list
  elements: str
notes:
  description: What an administrator has to do, in sentences.
  returned: success
  type: list
  elements: str
"""
