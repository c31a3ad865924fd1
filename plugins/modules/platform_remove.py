"""Documentation of the module platform_remove, which undoes the role platform; the code is plugins/action/platform_remove.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: platform_remove
short_description: Remove what the role platform installed
description:
  - Removes only what carries our owner label, in reverse order, from any half-installed state.
  - What people would lose with it is counted and listed first, and nothing is removed if there is any; check mode returns it in
    RV(kept).
  - Nothing is removed while a job has quota of our ClusterQueue, or another queue borrows from it.
version_added: 0.1.0
options:
  table:
    description: The operators, as roles/platform/vars/main.yml has them.
    type: dict
    required: true
  resources:
    description: The operators' own resources.
    type: dict
    required: true
  remove_data:
    description: Also delete what people made, in namespaces, on storage and of kinds that go.
    type: bool
    default: false
  timeout:
    description: Seconds to wait until each object is gone.
    type: float
    required: true
  poll:
    description: Seconds between polls.
    type: float
    default: 5.0
extends_documentation_fragment: trainlab.rhoai.cluster
author:
  - The trainlab authors (@trainlab)
"""

EXAMPLES = r"""
- name: Remove the platform
  trainlab.rhoai.platform_remove:
    kubeconfig: ~/.kube/config
    table: "{{ __platform_table }}"
    resources: "{{ __platform_resources }}"
    timeout: 600
"""

RETURN = r"""
kept:
  description: Sentences about what was not ours.
  returned: success
  type: list
  elements: str
removed:
  description: One line for each object.
  returned: success
  type: list
  elements: str
"""
