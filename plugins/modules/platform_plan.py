"""Documentation of the module platform_plan, which compares the wanted operators with the cluster; the code is plugins/action/platform_plan.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: platform_plan
short_description: Plan which operators to install from where
description:
  - Read-only. An inventory that contradicts itself is refused before the cluster is queried.
  - All objections are reported in one error; without any it returns what to apply, and the drift.
version_added: 0.1.0
options:
  cluster_id:
    description: Required UID of the cluster's namespace kube-system; empty checks nothing.
    type: str
    default: ""
  table:
    description: The operators, as roles/platform/vars/main.yml has them.
    type: dict
    required: true
  resources:
    description: The operators' own resources.
    type: dict
    default: {}
  inventory:
    description: >-
      What decides about operators: the variables C(platform_operators), C(platform_channels), C(platform_sources), C(platform_versions),
      C(platform_approval), C(platform_components), C(platform_gpu_policy), C(platform_gpu_shares), C(platform_queue) and C(platform_storage) of the role
      P(trainlab.rhoai.platform#role) without their prefix, C(release), that of OpenShift AI, and C(training_api), the site's.
    type: dict
    required: true
extends_documentation_fragment: trainlab.rhoai.cluster
author:
  - The trainlab authors (@trainlab)
"""

EXAMPLES = r"""
- name: Plan
  trainlab.rhoai.platform_plan:
    kubeconfig: ~/.kube/config
    table: "{{ __platform_table }}"
    inventory: "{{ __platform_inventory }}"
"""

RETURN = r"""
documents:
  description: What to apply, in order.
  returned: success
  type: list
  elements: dict
drift:
  description: Sentences about what differs and is not ours.
  returned: success
  type: list
  elements: str
operators:
  description: The operators in order, with their state.
  returned: success
  type: list
  elements: dict
release:
  description: Entry of meta/releases.yml for the release; empty without one.
  returned: success
  type: dict
resources:
  description: The resources by operator, in the version that the cluster serves.
  returned: success
  type: dict
"""
