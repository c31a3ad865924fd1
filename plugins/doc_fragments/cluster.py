"""Documentation shared by all action plugins that take a kubeconfig and a context; they name it trainlab.rhoai.cluster."""

from __future__ import annotations


class ModuleDocFragment:
    """Options and notes, merged by Ansible into those of the module."""

    DOCUMENTATION = r"""
options:
  kubeconfig:
    description:
      - Kubeconfig of the cluster, or several of them joined as in the variable E(KUBECONFIG).
      - Empty uses E(K8S_AUTH_HOST) and related variables as C(kubernetes.core) does or, in a pod, the service account.
      - Without it, the variable C(trainlab_kubeconfig) if there is one.
    type: str
    default: ""
  kube_context:
    description: Context of the kubeconfig; empty uses its current one. Without it, the variable C(trainlab_kube_context) if there is one.
    type: str
    default: ""
notes:
  - Runs on the controller, with the Python package C(kubernetes).
  - Supports check mode.
"""
