"""Documentation of the module attendees_remove, which removes attendees; the code is plugins/action/attendees_remove.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: attendees_remove
short_description: Remove attendees from a cluster and a folder
description:
  - Removes what carries the owner label of the role C(attendees), and nothing else, and waits until it is gone. Another workshop's
    attendees, whose namespaces have another prefix, stay, even if they have the same names.
version_added: 0.1.0
options:
  attendees:
    description: 'Whom to remove: C(name) and C(namespace) of each; empty removes all whose namespace is C(prefix) and their name.'
    type: list
    elements: dict
    required: true
  prefix:
    description: Prefix that, with the name, gives the namespace; used only if no attendees are listed.
    type: str
    default: trainlab-
  dest:
    description: Folder of their kubeconfigs.
    type: path
    required: true
  timeout:
    description: Seconds to wait until each object is gone.
    type: float
    required: true
extends_documentation_fragment: trainlab.rhoai.cluster
author:
  - The trainlab authors (@trainlab)
"""

EXAMPLES = r"""
- name: Remove all attendees
  trainlab.rhoai.attendees_remove:
    kubeconfig: ~/.kube/config
    attendees: []
    dest: artifacts/attendees
    timeout: 300
"""

RETURN = r"""
removed:
  description: One line for each object and file.
  returned: success
  type: list
  elements: str
"""
