"""Filter plain_yaml: data as YAML that Helm, kubectl and trainlab read alike, with vaulted values decrypted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..plugin_utils.plain import to_yaml

DOCUMENTATION = r"""
name: plain_yaml
short_description: Data as YAML of which every reader makes the same
description: >-
  Text that a reader could take for a number, a truth value or nothing is in quotes, and vaulted values are decrypted;
  C(to_nice_yaml) writes their ciphertext, which Helm takes for the value. The filter C(listed) returns what stands between the commas
  of a string, as the command line gives a list, and a list as it is.
version_added: 0.1.0
options:
  _input:
    description: The data.
    type: raw
    required: true
author:
  - The trainlab authors
"""

EXAMPLES = r"""
- name: Show the site
  ansible.builtin.debug:
    msg: "{{ {'site': trainlab_site} | trainlab.rhoai.plain_yaml }}"
"""

RETURN = r"""
_value:
  description: The text.
  type: str
"""


def listed(value: Any) -> Any:
    """Return what stands between the commas of a string, as `-e workspace_users=ada,grace` gives one; a list stays as it is."""
    return [each for each in value.split(",") if each] if isinstance(value, str) else value


class FilterModule:
    """Found by Ansible."""

    def filters(self) -> dict[str, Callable[[Any], Any]]:
        """Return the filters by name."""
        return {"listed": listed, "plain_yaml": to_yaml}
