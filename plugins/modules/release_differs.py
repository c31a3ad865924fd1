"""Documentation of the module release_differs, which compares a Helm release with a chart and values; the code is plugins/action/release_differs.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release_differs
short_description: Say in what a Helm release differs from a chart folder and values
description:
  - Compares the values of the newest revision, and each template and JSON file of its chart, with those that are given, so that an edited
    chart is seen whose version is the same.
  - Changes nothing; in check mode it is C(changed) where an upgrade would change something.
version_added: 0.1.0
options:
  helm:
    description: Beginning of a shell command that runs Helm on the cluster, as C(trainlab_resolved.helm).
    type: str
    required: true
  environment:
    description: Variables of the environment for Helm.
    type: dict
    default: {}
  chart:
    description: Folder of the chart.
    type: path
    required: true
  values:
    description: Values that the release should have, without the chart's defaults.
    type: dict
    required: true
extends_documentation_fragment: trainlab.rhoai.release
author:
  - The trainlab authors (@trainlab)
"""

EXAMPLES = r"""
- name: Look at the release
  trainlab.rhoai.release_differs:
    helm: helm --kubeconfig ~/.kube/config
    namespace: trainlab-demo
    release: survival
    chart: charts/trainjob
    values: {site: {queue: team-a}}
"""

RETURN = r"""
status:
  description: Status of the newest revision as Helm names it (C(deployed), C(failed), C(pending-upgrade) ...), empty without a release.
  returned: success
  type: str
updated:
  description: When that revision was made, empty without a release.
  returned: success
  type: str
differs:
  description: What is not as given, C(release), C(status), C(values) or C(chart FILE); empty if an upgrade would change nothing.
  returned: success
  type: list
  elements: str
"""
