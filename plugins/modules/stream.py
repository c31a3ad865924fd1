"""Documentation of the module stream, which runs a command and prints its lines while it runs; the code is plugins/action/stream.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: stream
short_description: Run a command on the controller and print its lines as they come
description:
  - For commands that take minutes. C(ansible.builtin.command) prints nothing before the end.
  - The last line gives the outcome, C(changed=true), C(changed=false), or a JSON object with a key C(changed).
  - A failure is the command's own line C(error. ...) when it printed one, else its last lines. Check mode does not run it.
version_added: 0.1.0
options:
  argv:
    description: Command and arguments.
    type: list
    elements: str
    required: true
notes:
  - Runs on the controller.
  - Supports check mode.
author:
  - The trainlab authors (@trainlab)
"""

EXAMPLES = r"""
- name: Bring the embedded cluster up
  trainlab.rhoai.stream:
    argv: [python3, cluster, up, --nodes, "2"]
"""

RETURN = r"""
answer:
  description: The JSON object of the last line, empty without one.
  returned: success
  type: dict
"""
