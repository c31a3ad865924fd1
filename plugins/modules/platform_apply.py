"""Documentation of the module platform_apply, which applies documents of the platform; the code is plugins/action/platform_apply.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: platform_apply
short_description: Apply the documents of one step of the platform
description:
  - What exists without our owner label is never changed; how it differs is returned as C(drift).
version_added: 0.1.0
options:
  documents:
    description: The objects, in order.
    type: list
    elements: dict
    required: true
  fields_only:
    description: Only set these fields of an object that an operator creates, without owning it.
    type: bool
    default: false
extends_documentation_fragment: trainlab.rhoai.cluster
author:
  - The trainlab authors (@trainlab)
"""

EXAMPLES = r"""
- name: Apply a namespace
  trainlab.rhoai.platform_apply:
    kubeconfig: ~/.kube/config
    documents: [{apiVersion: v1, kind: Namespace, metadata: {name: openshift-nfd}}]
"""

RETURN = r"""
drift:
  description: Sentences about what differs and is not ours.
  returned: success
  type: list
  elements: str
objects:
  description: One line for each object.
  returned: success
  type: list
  elements: str
requests:
  description: Number of requests to the API server.
  returned: success
  type: int
"""
