"""Documentation of the module run_results, which copies the results of a run from its volume; the code is plugins/action/run_results.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: run_results
short_description: Copy the results of a run from its volume to the controller
description:
  - Starts a short-lived pod that may read the volume of the runs, takes the JSON files and the report from its log, removes it.
  - Needs no exec or copy rights, only those that installing the chart needs anyway.
version_added: 0.1.0
options:
  run:
    description: Name of the run.
    type: str
    required: true
  claim:
    description: PersistentVolumeClaim of the runs.
    type: str
    required: true
  sub_path:
    description: Folder inside the claim that is the volume of the runs; empty for the whole claim.
    type: str
    default: ""
  image:
    description: Image with a shell, tar and base64; the trainer image has them.
    type: str
    required: true
  pull_policy:
    description: Pull policy of the image.
    type: str
    default: IfNotPresent
  pull_secret:
    description: Name of a pull Secret; empty for none.
    type: str
    default: ""
  placement:
    description: Keys C(nodeSelector) and C(tolerations) of the pod.
    type: dict
    default: {}
  dest:
    description: Folder on the controller; the files go into a subfolder named after the run.
    type: path
    required: true
  required:
    description: Fail where the volume holds no such run; otherwise there are no files.
    type: bool
    default: true
  timeout:
    description: Seconds to wait until the pod has ended.
    type: int
    default: 120
extends_documentation_fragment: [trainlab.rhoai.cluster, trainlab.rhoai.release]
author:
  - The trainlab authors (@trainlab)
"""

EXAMPLES = r"""
- name: Fetch the results
  trainlab.rhoai.run_results:
    kubeconfig: ~/.kube/config
    namespace: trainlab-demo
    release: survival
    run: survival-1a2b3c4d
    claim: survival-runs
    image: registry.example.com/trainlab/trainer:0.1.0
    dest: artifacts
"""

RETURN = r"""
path:
  description: Folder with the files.
  returned: success
  type: str
files:
  description: Names of the files.
  returned: success
  type: list
  elements: str
report:
  description: Content of report.json, empty when the run has none.
  returned: success
  type: dict
gate:
  description: Content of gate.json, empty when the run has none.
  returned: success
  type: dict
"""
