"""Filter listed: a list of the command line, which is a string there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

DOCUMENTATION = r"""
name: listed
short_description: A list that may be given as a string
description: What stands between the commas of a string, as C(-e workspace_users=ada,grace) gives one; a list stays as it is.
version_added: 0.1.0
options:
  _input:
    description: A list, or a string.
    type: raw
    required: true
author:
  - The trainlab authors
"""

EXAMPLES = r"""
- name: Show each user
  ansible.builtin.debug:
    msg: "{{ item }}"
  loop: "{{ workspace_users | trainlab.rhoai.listed }}"
"""

RETURN = r"""
_value:
  description: The list; empty for an empty string.
  type: list
  elements: raw
"""


def listed(given: Any) -> Any:
    """Return the list."""
    return [each for each in given.split(",") if each] if isinstance(given, str) else given


class FilterModule:
    """Found by Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by name."""
        return {"listed": listed}
