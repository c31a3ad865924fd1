"""Documentation of the module platform_remove, which undoes the role platform; the code is plugins/action/platform_remove.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: platform_remove
short_description: Remove what the role platform installed
description:
  - Only what carries our owner label goes, from any half-installed state, in reverse order.
version_added: 0.1.0
options:
  table:
    description: The operators, as roles/platform/vars/main.yml has them.
    type: dict
    required: true
  resources:
    description: The resources by which they do their work.
    type: dict
    required: true
  remove_data:
    description: Remove CustomResourceDefinitions although other people's objects of them remain.
    type: bool
    default: false
  timeout:
    description: Seconds until each object has to be gone.
    type: float
    required: true
  poll:
    description: Seconds between two looks.
    type: float
    default: 5.0
extends_documentation_fragment: trainlab.rhoai.cluster
author:
  - The trainlab authors (@trainlab)
"""

EXAMPLES = r"""
- name: The platform is gone
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
