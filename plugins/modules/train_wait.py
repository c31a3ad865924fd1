"""Documentation of the module train_wait, which follows the training job of a release to its end; the code is plugins/action/train_wait.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: train_wait
short_description: Follow the training job of a release to its end
description:
  - Prints state changes of the pods and the log of rank 0 while the PyTorchJob or TrainJob runs.
  - With step C(prepare) it follows the Job that makes the text of C(phase.text.prepare) ready.
  - Fails at once with reason and last log lines when a container fails, an image cannot be pulled, or no node takes a pod.
version_added: 0.1.0
options:
  step:
    description: What is followed, the training or the Job that prepares its text (C(site.step) of the chart).
    type: str
    choices: [train, prepare]
    default: train
  timeout:
    description: Seconds to wait for the end.
    type: int
    default: 7200
  unschedulable_timeout:
    description: Seconds a pod may wait for a node; raise it if an autoscaler adds nodes.
    type: int
    default: 60
  start_timeout:
    description: Seconds to wait until the job, and its first pod, exist.
    type: int
    default: 90
extends_documentation_fragment: [trainlab.rhoai.cluster, trainlab.rhoai.release]
author:
  - The trainlab authors (@trainlab)
"""

EXAMPLES = r"""
- name: Follow the run
  trainlab.rhoai.train_wait:
    kubeconfig: ~/.kube/config
    namespace: trainlab-demo
    release: survival
"""

RETURN = r"""
run:
  description: Name of the run, which is the name of the job.
  returned: success
  type: str
kind:
  description: PyTorchJob or TrainJob; Job with step C(prepare).
  returned: success
  type: str
state:
  description: succeeded; in check mode also running or absent.
  returned: success
  type: str
seconds:
  description: Seconds waited.
  returned: success
  type: int
"""
