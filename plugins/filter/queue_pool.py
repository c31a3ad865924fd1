"""Filter queue_pool: the ResourceFlavor and the ClusterQueue of that name, with what the cluster's nodes offer as quota."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..plugin_utils.queue_pool import pool

Json = dict[str, Any]

DOCUMENTATION = r"""
name: queue_pool
short_description: ResourceFlavor and ClusterQueue with what the cluster's nodes offer as quota
description: Counts the nodes that take pods of the site. The ClusterQueue is in a cohort of its own name, to which it lends.
version_added: 0.1.0
options:
  _input:
    description: The name of both.
    type: str
    required: true
  nodes:
    description: All Nodes of the cluster.
    type: list
    elements: dict
    required: true
  site:
    description: Block C(site); read are C(nodeSelector), C(tolerations) and C(gpuResource).
    type: dict
    default: {}
  quota:
    description: Amount by resource, instead of what the nodes offer of it.
    type: dict
    default: {}
author:
  - The trainlab authors
"""

EXAMPLES = r"""
- name: Show the queue
  ansible.builtin.debug:
    msg: "{{ 'trainlab-pool' | trainlab.rhoai.queue_pool(nodes.resources, {}, {'nvidia.com/gpu': 4}) }}"
"""

RETURN = r"""
_value:
  description: The two documents.
  type: list
  elements: dict
"""


def queue_pool(name: str, nodes: list[Json], site: Json | None = None, quota: Json | None = None) -> list[Json]:
    """Return the two documents; AnsibleActionFail names the variable of an amount that cannot be."""
    return pool(name, nodes, site or {}, quota or {})


class FilterModule:
    """Found by Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by name."""
        return {"queue_pool": queue_pool}
