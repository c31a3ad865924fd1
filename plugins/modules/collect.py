"""Documentation of the module collect, which records what a cluster reports; the code is plugins/action/collect.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: collect
short_description: Record what a cluster reports, without secrets
description:
  - Looks at what the roles wait for, the tables of the role P(trainlab.rhoai.platform#role) among it, until the time is over, and
    writes down what changed; it sends nothing but GET requests.
  - Reads neither Secrets nor ConfigMaps. Removes what a key names as a secret, or what has the form of one, from all that it writes.
  - What these credentials may not read is left out and listed in RV(unread). The bundle is complete after each pass.
version_added: 0.1.0
options:
  image_namespace:
    description: Namespace of the builds; empty if they are in O(namespace).
    type: str
    default: ""
  namespace:
    description: Namespace of the jobs and of the served model.
    type: str
    required: true
  seconds:
    description: How long to look; 0 looks once.
    type: float
    default: 0.0
  poll:
    description: Seconds between two passes.
    type: float
    default: 5.0
  log_lines:
    description: How many last lines of a container's log are kept.
    type: int
    default: 200
  dest:
    description: Folder on the controller for the bundle.
    type: str
    required: true
extends_documentation_fragment: trainlab.rhoai.cluster
author:
  - The trainlab authors (@trainlab)
"""

EXAMPLES = r"""
- name: Record for an hour
  trainlab.rhoai.collect:
    kubeconfig: ~/.kube/config
    namespace: demo
    seconds: 3600
    dest: artifacts
"""

RETURN = r"""
bundle:
  description: The archive that was written; empty in check mode.
  returned: success
  type: str
changes:
  description: Number of changes that were seen, the first sight of an object included.
  returned: success
  type: int
unread:
  description: What could not be read, and why.
  returned: success
  type: list
  elements: str
"""
