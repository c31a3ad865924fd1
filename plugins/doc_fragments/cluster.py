"""Documentation that all action plugins share which are told a kubeconfig and a context; they name it trainlab.rhoai.cluster."""

from __future__ import annotations


class ModuleDocFragment:
    """Options and notes, merged by Ansible into those of the module."""

    DOCUMENTATION = r"""
options:
  kubeconfig:
    description: Kubeconfig of the cluster.
    type: path
    required: true
  kube_context:
    description: Context of the kubeconfig; empty is its current one.
    type: str
    default: ""
notes:
  - Runs on the controller, with the Python package C(kubernetes).
  - Supports check mode.
"""
