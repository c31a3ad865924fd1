"""The planner: what a phase costs, whether it fits, and which advertised numbers cannot be true. No torch, no network.

`plan_command.command` is `trainlab plan`; `estimate.estimate` and `checks.check` are what the playbooks and tests call.
"""
