"""Documentation of the module image_wait, which waits until nodes have images; the code is plugins/action/image_wait.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: image_wait
short_description: Wait until the nodes have the images of a DaemonSet
description:
  - Fails at once when an image cannot be pulled or a pod cannot start, and says why.
version_added: 0.1.0
options:
  namespace:
    description: Namespace of the DaemonSet.
    type: str
    required: true
  name:
    description: Name of the DaemonSet, and value of the label C(app.kubernetes.io/name) of its pods.
    type: str
    required: true
  timeout:
    description: Seconds to wait until the images are on all nodes.
    type: float
    required: true
  unschedulable_timeout:
    description: Seconds a pod may wait for its node.
    type: float
    default: 60
extends_documentation_fragment: trainlab.rhoai.cluster
author:
  - The trainlab authors (@trainlab)
"""

EXAMPLES = r"""
- name: Wait until the image is on the nodes
  trainlab.rhoai.image_wait:
    kubeconfig: ~/.kube/config
    namespace: trainlab-demo
    name: trainlab-prepull
    timeout: 1800
"""

RETURN = r"""
nodes:
  description: Number of nodes that have the images.
  returned: success
  type: int
"""
