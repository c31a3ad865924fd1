"""Documentation of the module attendees_end, which ends attendees' access; the code is plugins/action/attendees_end.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: attendees_end
short_description: End the access of attendees beyond a count
description:
  - Deletes the ServiceAccounts of numbered attendees beyond O(count), so that their tokens end, and their kubeconfigs.
  - Their namespaces stay with what was made in them.
version_added: 0.1.0
options:
  count:
    description: Number of numbered attendees, C(user1) and so on; 0 ends nobody's access.
    type: int
    required: true
  confirmed:
    description: Whether access may end; without it the module fails with the names of those who would lose it.
    type: bool
    default: false
  prefix:
    description: What precedes the attendees' names in those of their namespaces; others' are left alone.
    type: str
    default: ""
  service_account:
    description: Name of the ServiceAccount in each namespace.
    type: str
    required: true
  dest:
    description: Folder of NAME.kubeconfig.
    type: path
    required: true
extends_documentation_fragment: trainlab.rhoai.cluster
author:
  - The trainlab authors (@trainlab)
"""

EXAMPLES = r"""
- name: End the access of those beyond ten
  trainlab.rhoai.attendees_end:
    kubeconfig: ~/.kube/config
    count: 10
    confirmed: true
    prefix: trainlab-
    service_account: attendee
    dest: artifacts/attendees
"""

RETURN = r"""
ended:
  description: A sentence for each attendee whose token ended.
  returned: success
  type: list
  elements: str
"""
