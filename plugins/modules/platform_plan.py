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
  operators:
    description: Names of the wanted operators; dependencies are added.
    type: list
    elements: str
    required: true
  release:
    description: Release of OpenShift AI, one of the collection's meta/releases.yml.
    type: str
    default: ""
  channels:
    description: Channels by operator.
    type: dict
    default: {}
  sources:
    description: Catalogs by operator.
    type: dict
    default: {}
  versions:
    description: Versions by operator.
    type: dict
    default: {}
  approval:
    description: Who approves InstallPlans.
    type: str
    choices: [Automatic, Manual]
    default: Automatic
  components:
    description: DataScienceCluster components to merge over the release's.
    type: dict
    default: {}
  gpu_policy:
    description: Fields to merge over the ClusterPolicy.
    type: dict
    default: {}
  gpu_shares:
    description: Pods that share one GPU.
    type: int
    default: 1
  storage:
    description: Shared storage, see the role's variable C(platform_storage).
    type: dict
    default: {}
  training_api:
    description: Key trainingApi of the values' block site.
    type: str
    default: auto
extends_documentation_fragment: trainlab.rhoai.cluster
author:
  - The trainlab authors (@trainlab)
"""

EXAMPLES = r"""
- name: Plan
  trainlab.rhoai.platform_plan:
    kubeconfig: ~/.kube/config
    table: "{{ __platform_table }}"
    operators: [gpu, rhoai]
    release: "3.4"
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
