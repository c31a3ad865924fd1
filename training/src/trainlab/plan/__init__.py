"""The planner: what a phase costs and whether it fits. No torch, no network.

`plan_command.command` is `trainlab plan`; `estimate.estimate` and `checks.check` are what the playbooks and tests call.
"""
