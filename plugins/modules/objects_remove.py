"""Documentation of the module objects_remove, which deletes objects; the code is plugins/action/objects_remove.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: objects_remove
short_description: Delete objects by name
description:
  - Those that are not there, or of a kind that is not served, are no error; what blocks one is named.
version_added: 0.1.0
options:
  documents:
    description: The objects; C(apiVersion), C(kind), C(metadata.name) and C(metadata.namespace) of each are read.
    type: list
    elements: dict
    required: true
  optional:
    description: Leave what this user may not read, which somebody else has made.
    type: bool
    default: false
  wait:
    description: Whether to wait until each is gone.
    type: bool
    default: true
  timeout:
    description: Seconds to wait until each is gone.
    type: float
    default: 120
extends_documentation_fragment: trainlab.rhoai.cluster
author:
  - The trainlab authors (@trainlab)
"""

EXAMPLES = r"""
- name: Delete a pod
  trainlab.rhoai.objects_remove:
    documents: [{apiVersion: v1, kind: Pod, metadata: {name: survival-test, namespace: trainlab-demo}}]
"""

RETURN = r"""
removed:
  description: A line for each object that was there.
  returned: success
  type: list
  elements: str
"""
