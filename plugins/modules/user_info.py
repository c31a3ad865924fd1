"""Documentation of the module user_info, which reports what was created; the code is plugins/action/user_info.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: user_info
short_description: Report to AgnosticD, or on the screen, what was created
description:
  - Calls C(agnosticd.core.agnosticd_user_info) where that is installed, and prints C(msg) elsewhere.
version_added: 0.1.0
options:
  msg:
    description: Text for whoever gets the environment.
    type: str
    required: true
  data:
    description: Values for AgnosticD's record, credentials among them; never printed.
    type: dict
    default: {}
  user:
    description: Name of the user it is for; empty means the whole environment.
    type: str
    default: ""
  silent:
    description: Print nothing without AgnosticD.
    type: bool
    default: false
notes:
  - Runs on the controller.
  - Supports check mode.
author:
  - The trainlab authors (@trainlab)
"""

EXAMPLES = r"""
- name: Report what was set up
  trainlab.rhoai.user_info:
    msg: Namespace trainlab-demo exists.
    data: {trainlab_namespace: trainlab-demo}
"""

RETURN = r"""
msg:
  description: The message.
  returned: success
  type: str
"""
