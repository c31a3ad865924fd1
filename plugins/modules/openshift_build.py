"""Documentation of the module openshift_build, which builds an image on OpenShift; the code is plugins/action/openshift_build.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: openshift_build
short_description: Build an image with a BuildConfig
description:
  - Builds unless the tag, a hash of all inputs, exists; an interrupted run continues with its build, which O(again) does not once that
    has begun, as its sources may be older.
  - A failed build fails the task with the last lines of its log.
version_added: 0.1.0
options:
  namespace:
    description: Namespace of the BuildConfig and the ImageStream.
    type: str
    required: true
  name:
    description: Name of both.
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
    description: Files and folders to upload, the Containerfile first; empty builds the BuildConfig's own source.
    type: list
    elements: str
    default: []
  again:
    description: Build even if the tag exists.
    type: bool
    default: false
  timeout:
    description: Seconds to wait for the build to complete.
    type: float
    required: true
extends_documentation_fragment: trainlab.rhoai.cluster
author:
  - The trainlab authors (@trainlab)
"""

EXAMPLES = r"""
- name: Build the image
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
