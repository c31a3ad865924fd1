"""Filter image_set: the platform's operators and other images as a configuration of oc-mirror."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..plugin_utils import image_set as sets
from ..plugin_utils.olm_plan import Wanted
from ..plugin_utils.releases import releases

Json = dict[str, Any]

DOCUMENTATION = r"""
name: image_set
short_description: The platform's operators and other images as a configuration of oc-mirror
description:
  - Returns C(document), the ImageSetConfiguration, and C(sources), the value of C(platform_sources) for the mirrored catalogs.
  - Returns C(wrong) instead, a sentence for each variable for which nothing can be mirrored.
version_added: 0.1.0
options:
  _input:
    description: Images by full reference, with a digest.
    type: list
    elements: str
    required: true
  openshift:
    description: OpenShift release of the cluster.
    type: str
    required: true
  table:
    description: The platform role's table of operators.
    type: dict
    required: true
  operators:
    description: C(platform_operators).
    type: list
    elements: str
    required: true
  release:
    description: C(trainlab_platform_release).
    type: str
    required: true
  channels:
    description: C(platform_channels).
    type: dict
    required: true
author:
  - The trainlab authors (@trainlab)
"""

EXAMPLES = r"""
- name: Show what a cluster without a way out needs
  ansible.builtin.debug:
    msg: "{{ images | trainlab.rhoai.image_set('4.20', table, ['gpu', 'rhoai'], '3.4', {}) }}"
"""

RETURN = r"""
_value:
  description: C(wrong), and C(document) and C(sources) if it is empty.
  type: dict
"""


def image_set(
    images: list[str], openshift: str, table: Json, operators: list[str], release: str, channels: dict[str, str]
) -> Json:
    """Return document and sources, or what is wrong with the inventory."""
    wanted = Wanted(table, releases(), list(operators), str(release), channels, {}, {}, "Automatic")
    if errors := sets.wrong(wanted, str(openshift), images):
        return {"wrong": errors}
    return {
        "wrong": [],
        "document": sets.image_set(wanted, str(openshift), images),
        "sources": sets.sources(wanted, str(openshift)),
    }


class FilterModule:
    """Found by Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by name."""
        return {"image_set": image_set}
