"""Documentation shared by action plugins that take a release; they name it trainlab.rhoai.release."""

from __future__ import annotations


class ModuleDocFragment:
    """Options, merged by Ansible into those of the module."""

    DOCUMENTATION = r"""
options:
  namespace:
    description: Namespace of the release.
    type: str
    required: true
  release:
    description: Name of the Helm release.
    type: str
    required: true
"""
