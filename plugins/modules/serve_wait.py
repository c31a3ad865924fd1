"""Documentation of the module serve_wait, which waits for the promotion and the served model; the code is plugins/action/serve_wait.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: serve_wait
short_description: Wait for the promotion and the served model, then ask it
description:
  - Waits for the promotion Job of a run and for its InferenceService, and asks base and tuned model one question.
  - Without an adapter vLLM serves one of the two, as phase.serve.weights says; only that one is asked then.
  - A run that the gate does not promote is not a failure.
version_added: 0.1.0
options:
  run:
    description: Name of the run.
    type: str
    required: true
  model:
    description: Model that has to be served, as C(phase.serve.weights) says.
    type: str
    default: tuned
  question:
    description: Question for both models; empty asks nothing.
    type: str
    default: ""
  max_tokens:
    description: Maximum tokens of an answer.
    type: int
    default: 64
  timeout:
    description: Seconds to wait for each of the two.
    type: int
    default: 900
  unschedulable_timeout:
    description: Seconds a pod may wait for a node.
    type: int
    default: 60
extends_documentation_fragment: [trainlab.rhoai.cluster, trainlab.rhoai.release]
author:
  - The trainlab authors (@trainlab)
"""

EXAMPLES = r"""
- name: Wait for the served model
  trainlab.rhoai.serve_wait:
    kubeconfig: ~/.kube/config
    namespace: trainlab-demo
    release: survival
    run: survival-1a2b3c4d
    question: How do I tie a bowline?
"""

RETURN = r"""
promoted:
  description: Whether the gate promoted the run and it is served.
  returned: success
  type: bool
reason:
  description: Why it is not served.
  returned: success
  type: str
cluster_ip:
  description: Address of the model's Service.
  returned: success
  type: str
answers:
  description: Answers by model name.
  returned: success
  type: dict
"""
