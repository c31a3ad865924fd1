"""The Role of roles/workspace grants what the check of rights asks for: the remedy that this names is one."""

from __future__ import annotations

import json
from typing import Any

import jinja2
import pytest
import yaml
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.checks import rights

from plugins.checking import Case, both, break_, want
from plugins.test_network import TEMPLATES

ALL = both(
    want(phase__serve__hours=2, site__expose__enabled=True, site__expose__host="m.example.com"),
    want(site__monitoring__enabled=True, site__tensorboard__enabled=True),
)
ROUTES = break_("/apis/route.openshift.io/v1", {"resources": [{"name": "routes"}]})


@pytest.mark.parametrize("api", ["pytorchjob", "trainjob"])
@pytest.mark.parametrize("openshift", [False, True])
def test_the_role_of_a_workspace_grants_what_is_asked_for(cluster: Any, api: str, openshift: bool) -> None:
    case = Case(cluster)
    both(ALL, want(site__trainingApi=api), ROUTES if openshift else want())(case)
    granted = {
        (group, resource, verb)
        for rule in role(exposes=True, monitors=True, tensorboard=True)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    core, operators = rights.wanted(case.cluster_state())
    asked = {(group, resource, verb) for group, resource, verbs in core + operators for verb in verbs}
    assert asked <= granted, asked - granted
    kinds = {
        resource for rule in role(exposes=False, monitors=False, tensorboard=False) for resource in rule["resources"]
    }
    assert not kinds & {"routes", "ingresses", "podmonitors"}


def test_pods_are_opened_only_where_it_is_asked_for() -> None:
    """Who can exec can read what a pod mounts."""
    execs = [[rule for rule in role(transfer=asked) if "pods/exec" in rule["resources"]] for asked in (False, True)]
    assert execs == [[], [{"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]}]]


def role(**space: bool) -> list[dict[str, Any]]:
    """The rules of the Role in a namespace."""
    world = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), trim_blocks=True)
    world.filters["to_json"] = json.dumps
    given = {"namespace": "demo", "account": "trainlab", "users": [], "groups": []} | space
    text = world.get_template("access.yaml.j2").render(space=given)
    (found,) = [each for each in yaml.safe_load_all(text) if each and each["kind"] == "Role"]
    rules: list[dict[str, Any]] = found["rules"]
    return rules
