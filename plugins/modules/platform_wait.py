"""Documentation of the module platform_wait, which waits for operators and their resources; the code is plugins/action/platform_wait.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: platform_wait
short_description: Wait for operators and their resources
description:
  - Waits for all of them at the same time, says what each is waiting for, and fails at once when one has failed for good.
  - A failure from which operators recover by themselves ends the wait when it lasts longer than O(grace).
  - An operator is ready when the expected version is installed and its CustomResourceDefinition is served.
  - With manual approval it approves the InstallPlans up to the expected version, and no later one. Check mode polls once.
version_added: 0.1.0
options:
  operators:
    description: Operators as module M(trainlab.rhoai.platform_plan) returned them.
    type: list
    elements: dict
    default: []
  resources:
    description: Objects, each with C(title) and C(ready).
    type: list
    elements: dict
    default: []
  timeout:
    description: Seconds to wait until all of them are ready.
    type: float
    required: true
  grace:
    description: Seconds that a failure may last from which operators recover by themselves.
    type: float
    default: 600.0
  poll:
    description: Seconds between polls.
    type: float
    default: 5.0
extends_documentation_fragment: trainlab.rhoai.cluster
author:
  - The trainlab authors (@trainlab)
"""

EXAMPLES = r"""
- name: Wait for JobSet's API
  trainlab.rhoai.platform_wait:
    kubeconfig: ~/.kube/config
    resources:
      - title: JobSet's own API
        apiVersion: apiextensions.k8s.io/v1
        kind: CustomResourceDefinition
        name: jobsets.jobset.x-k8s.io
        ready: {condition: Established}
    timeout: 900
"""

RETURN = r"""
approved:
  description: InstallPlans that were approved.
  returned: success
  type: list
  elements: str
examples:
  description: The operators' own examples, by operator.
  returned: success
  type: dict
installed:
  description: ClusterServiceVersion that is ready, by operator.
  returned: success
  type: dict
notes:
  description: Sentences about what is no failure but needs attention, such as a cluster without GPUs.
  returned: success
  type: list
  elements: str
seconds:
  description: How long it took.
  returned: success
  type: float
states:
  description: The last state, by title.
  returned: success
  type: dict
versions:
  description: Served versions, by CustomResourceDefinition.
  returned: success
  type: dict
"""
