"""Documentation of the module openshift_build, which builds an image on OpenShift; the code is plugins/action/openshift_build.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: openshift_build
short_description: Build an image by a BuildConfig
description:
  - Builds unless the tag, a hash of all that goes in, is there; a run that was cut off goes on with its build.
  - A build that fails ends the task with the last lines of its log.
version_added: 0.1.0
options:
  namespace:
    description: Namespace of the BuildConfig and the ImageStream.
    type: str
    required: true
  name:
    description: Their name.
    type: str
    required: true
  documents:
    description: BuildConfig, ImageStream and what they need.
    type: list
    elements: dict
    required: true
  root:
    description: Folder that C(context) is relative to.
    type: path
    required: true
  context:
    description: Files and folders that are sent, the Containerfile first; empty builds the BuildConfig's own source.
    type: list
    elements: str
    default: []
  again:
    description: Build although the tag is there.
    type: bool
    default: false
  timeout:
    description: Seconds until the build has to be complete.
    type: float
    required: true
extends_documentation_fragment: trainlab.rhoai.cluster
author:
  - The trainlab authors (@trainlab)
"""

EXAMPLES = r"""
- name: Image
  trainlab.rhoai.openshift_build:
    kubeconfig: ~/.kube/config
    namespace: demo
    name: trainlab-trainer
    documents: "{{ lookup('ansible.builtin.template', 'build.yaml.j2') | from_yaml_all }}"
    root: .
    timeout: 3600
"""

RETURN = r"""
build:
  description: Name of the build; empty when none was needed.
  returned: success
  type: str
image:
  description: Repository and digest.
  returned: success
  type: str
tag:
  description: Tag of the image.
  returned: success
  type: str
"""
