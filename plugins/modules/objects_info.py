"""Documentation of the module objects_info, which reads objects; the code is plugins/action/objects_info.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: objects_info
short_description: Read objects of one kind
description:
  - Lists them, or gets the one with O(name); a request that an overloaded server refused is sent again.
version_added: 0.1.0
options:
  api_version:
    description: Group and version.
    type: str
    default: v1
  kind:
    description: Kind.
    type: str
    required: true
  namespace:
    description: Namespace; empty reads all, or a kind without one.
    type: str
    default: ""
  name:
    description: Name of the object; empty lists all.
    type: str
    default: ""
  selector:
    description: Label selector of a list, as C(app=demo,component in (train, test)).
    type: str
    default: ""
  rights:
    description: Of the core API group, as C(create pods/exec); what this user may not do in the namespace is returned.
    type: list
    elements: str
    default: []
extends_documentation_fragment: trainlab.rhoai.cluster
author:
  - The trainlab authors (@trainlab)
"""

EXAMPLES = r"""
- name: List the pods of a release
  trainlab.rhoai.objects_info:
    kind: Pod
    namespace: trainlab-demo
    selector: app.kubernetes.io/instance=survival
"""

RETURN = r"""
api_found:
  description: The cluster serves the kind.
  returned: success
  type: bool
resources:
  description: The objects; empty where there are none, or the cluster does not serve the kind.
  returned: success
  type: list
  elements: dict
lacking:
  description: Those of O(rights) that this user does not have.
  returned: success
  type: list
  elements: str
"""
