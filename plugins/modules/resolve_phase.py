"""Documentation of the module resolve_phase, which checks the values and the connection before anything else; the code is plugins/action/resolve_phase.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: resolve_phase
short_description: Check a phase's values and the connection to its cluster
description:
  - Has C(trainlab check) merge and check values files and the inventory's part, and identifies the API server.
  - Has C(trainlab plan) say what the phase needs; a refusal is in the result and does not fail this task.
  - Fails with the sentences of C(trainlab check), or names the variable when the cluster cannot be reached.
version_added: 0.1.0
options:
  files:
    description: Values files, later ones win. Without any, only the connection is checked, and no fact is set.
    type: list
    elements: path
    default: []
  site:
    description: Block C(site) of the inventory, merged after the files.
    type: dict
    default: {}
  phase_overrides:
    description: Keys of C(phase) merged last; they change the name of the run.
    type: dict
    default: {}
  release:
    description: Name of the Helm release, after which the claims of its volumes are named.
    type: str
    default: ""
  cluster_proxy:
    description: Whether C(site) gets the addresses and the CA of OpenShift's own Proxy C(cluster), where it has none.
    type: bool
    default: false
  helm:
    description: Helm 3 or 4.
    type: path
    default: helm
  cluster_id:
    description: UID of the namespace kube-system; any other cluster is refused. Empty checks nothing.
    type: str
    default: ""
extends_documentation_fragment: trainlab.rhoai.cluster
author:
  - The trainlab authors (@trainlab)
"""

EXAMPLES = r"""
- name: Check values and connection
  trainlab.rhoai.resolve_phase:
    kubeconfig: ~/.kube/config
    files: [values/survival.yaml]
    release: survival
    site: {queue: team-a}
"""

RETURN = r"""
kubectl:
  description: Beginning of a shell command that reaches the cluster.
  returned: success
  type: str
helm:
  description: Beginning of a shell command of Helm that reaches the cluster.
  returned: success
  type: str
kueue:
  description: The version of Kueue's API that the cluster serves, as C(kueue.x-k8s.io/v1beta2); empty without Kueue.
  returned: without O(files)
  type: str
ansible_facts:
  description: What the roles of this collection share.
  returned: success
  type: complex
  contains:
    trainlab_resolved:
      description: C(phase) and C(site) as merged, with all defaults, the C(run) that it makes, C(world_size), the
        C(protocol) that is served (C(openai) or C(v2)), the C(claims) of the release by volume, C(plan)
        (C(ok), C(verdict), C(findings) and the numbers of C(trainlab plan --json)), C(proxy) (what C(site) got of the cluster's,
        and its C(ports)), C(server), C(kubectl) and C(helm) as the beginning
        of a shell command that reaches it, C(kubernetes) version, C(openshift) true or false,
        C(api_servers) (CIDR blocks from which their proxy comes; none on OpenShift, and where they may not be read),
        C(api_ports) (TCP ports on which they listen; the same),
        C(dns_servers) (CIDR blocks of NodeLocal DNSCache, which is no pod; none on OpenShift).
      returned: success
      type: dict
"""
