"""Documentation of the module objects_apply, which applies a set of objects; the code is plugins/action/objects_apply.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: objects_apply
short_description: Apply the objects of one owner
description:
  - Everything carries an owner label; what exists without it is never changed.
version_added: 0.1.0
options:
  owner:
    description: Value of the owner label.
    type: str
    required: true
  documents:
    description: The objects, in order.
    type: list
    elements: dict
    required: true
  foreign:
    description:
      - With C(refuse) a namespace that exists without the owner label fails the task before anything is applied; one list request for
        each kind and one request for each object that differs.
      - With C(report) the objects are applied one after the other; how those of others differ is returned as RV(drift).
    type: str
    choices: [refuse, report]
    default: refuse
  fields_only:
    description: With O(foreign=report), only set these fields of an object that an operator creates, without owning it.
    type: bool
    default: false
  initial:
    description:
      - With O(foreign=report), fields by kind that an object gets only when it is created; it is the administrator's from then on.
      - The documents' own fields follow later, unless somebody else has set them; what differs then is returned as RV(drift).
      - Kinds of the documents that it does not name have nothing more at first. Empty, the objects stay ours.
    type: dict
    default: {}
  namespace:
    description: Read and write only in this namespace, for a user who may not list all; objects of others in it are refused.
    type: str
    default: ""
  prune:
    description:
      - Kinds (C(apiVersion), C(kind)) besides those of the documents whose objects of this owner are deleted if no document names them.
      - Without C(namespace) only those of the attendees whose Namespaces, with their label, are among the documents; they are in that
        namespace, or carry the label and have a name that ends with the namespace's.
    type: list
    elements: dict
    default: []
  optional:
    description: Leave out the objects of kinds that the cluster does not serve or this user may not write; RV(left_out) says why.
    type: bool
    default: false
  pull_timeout:
    description: >-
      Seconds to wait until each node that a DaemonSet of the documents targets has the images of its pods; fails at once when one cannot
      be pulled. 0 does not wait.
    type: float
    default: 0.0
extends_documentation_fragment: trainlab.rhoai.cluster
author:
  - The trainlab authors (@trainlab)
"""

EXAMPLES = r"""
- name: Apply a namespace
  trainlab.rhoai.objects_apply:
    kubeconfig: ~/.kube/config
    owner: attendees
    documents: [{apiVersion: v1, kind: Namespace, metadata: {name: demo}}]
"""

RETURN = r"""
drift:
  description: Sentences about what differs and is not ours.
  returned: success
  type: list
  elements: str
left_out:
  description: With O(optional), a sentence for each kind that was left out.
  returned: success
  type: list
  elements: str
nodes:
  description: With O(pull_timeout), the number of nodes that have the images.
  returned: O(foreign=refuse)
  type: int
objects:
  description: One line for each object that was changed; with O(foreign=report), for each.
  returned: success
  type: list
  elements: str
requests:
  description: Number of requests to the API server.
  returned: success
  type: int
"""
