"""Filter queue_share: the resourceGroups of a ClusterQueue that owns nothing and borrows from the pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..plugin_utils.queue_pool import share

Json = dict[str, Any]

DOCUMENTATION = r"""
name: queue_share
short_description: The resourceGroups of a ClusterQueue that borrows from another one
description: Each resource has a nominal quota of 0 and, if the given quota limits it, that as its borrowing limit.
version_added: 0.1.0
options:
  _input:
    description: The resourceGroups of the ClusterQueue that lends.
    type: list
    elements: dict
    required: true
  quota:
    description: C(hard) of a ResourceQuota.
    type: dict
    default: {}
author:
  - The trainlab authors
"""

EXAMPLES = r"""
- name: Show what one may borrow
  ansible.builtin.debug:
    msg: "{{ queue.spec.resourceGroups | trainlab.rhoai.queue_share({'requests.nvidia.com/gpu': 1}) }}"
"""

RETURN = r"""
_value:
  description: The resourceGroups.
  type: list
  elements: dict
"""


def queue_share(groups: list[Json], quota: Json | None = None) -> list[Json]:
    """Return the resourceGroups of the borrower."""
    return share(groups, quota or {})


class FilterModule:
    """Found by Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by name."""
        return {"queue_share": queue_share}
