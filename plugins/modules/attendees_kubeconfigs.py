"""Documentation of the module attendees_kubeconfigs, which writes kubeconfigs for attendees; the code is plugins/action/attendees_kubeconfigs.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: attendees_kubeconfigs
short_description: Write a kubeconfig for each attendee
description:
  - Each holds a token of the attendee's ServiceAccount that expires by itself; one past half of its lifetime is renewed.
version_added: 0.1.0
options:
  attendees:
    description: 'Whom to write for: C(name) and C(namespace) of each.'
    type: list
    elements: dict
    required: true
  service_account:
    description: Name of the ServiceAccount in each namespace.
    type: str
    required: true
  dest:
    description: Folder for NAME.kubeconfig.
    type: path
    required: true
  hours:
    description: Hours until a token expires, 1 or more.
    type: float
    required: true
  server:
    description: Address of the API server in the files; empty uses that of the kubeconfig.
    type: str
    default: ""
  site:
    description: Block C(site) to write to site.yaml next to them; empty writes none.
    type: dict
    default: {}
extends_documentation_fragment: trainlab.rhoai.cluster
author:
  - The trainlab authors (@trainlab)
"""

EXAMPLES = r"""
- name: Write the kubeconfigs
  trainlab.rhoai.attendees_kubeconfigs:
    kubeconfig: ~/.kube/config
    attendees: [{name: ada, namespace: trainlab-ada}]
    service_account: attendee
    dest: artifacts/attendees
    hours: 12
"""

RETURN = r"""
dest:
  description: The folder, absolute.
  returned: success
  type: str
until:
  description: When the first of them expires.
  returned: success
  type: str
written:
  description: Names of the attendees written.
  returned: success
  type: list
  elements: str
"""
