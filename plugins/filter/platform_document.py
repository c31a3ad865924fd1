"""Filter platform_document: turns an entry of the role's table of resources into the document to apply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Json = dict[str, Any]

DOCUMENTATION = r"""
name: platform_document
short_description: An entry of the platform role's table of resources as a document
description: Returns apiVersion, kind, metadata and spec; the spec is the one given by operator name, else the entry's own.
version_added: 0.1.0
options:
  _input:
    description: An entry of C(platform_plan.resources).
    type: dict
    required: true
  specs:
    description: Specs by name of the operator, for those that depend on the cluster.
    type: dict
    default: {}
author:
  - The trainlab authors (@trainlab)
"""

EXAMPLES = r"""
- name: Show the ClusterPolicy
  ansible.builtin.debug:
    msg: "{{ platform_plan.resources.gpu | trainlab.rhoai.platform_document({'gpu': {}}) }}"
"""

RETURN = r"""
_value:
  description: The document.
  type: dict
"""


def platform_document(entry: Json, specs: Json | None = None) -> Json:
    """Return the document of an entry that platform_plan completed with `operator`, the operator's name."""
    metadata = {"name": entry["name"]} | ({"namespace": entry["namespace"]} if entry.get("namespace") else {})
    spec = (specs or {}).get(entry["operator"], entry.get("spec", {}))
    return {"apiVersion": entry["apiVersion"], "kind": entry["kind"], "metadata": metadata, "spec": spec}


class FilterModule:
    """Found by Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by name."""
        return {"platform_document": platform_document}
