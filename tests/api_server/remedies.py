"""The commands and variables that the project prints for people to run or set, as they stand in its sources.

A value that is filled in reads {} here, the beginning of a command that reaches a cluster its program alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
PROGRAM = re.compile(r"(?:kubectl|oc|helm|make|trainlab|ansible-playbook) (?=\S)")
"""What makes a text in backticks a command."""
BARE = re.compile(
    r"(?<![\w`./-])((?:kubectl|oc) (?:-n \S+ )?(?:get|describe|logs|label|delete|edit|debug|cordon|create|patch|role|rolebinding) .*)"
)
"""A command without backticks, which ends where the sentence goes on."""
ENDS = re.compile(r"[;(\n`]|, | shows | and ")
SPEAKS = (
    *("plugins/action", "plugins/plugin_utils", "roles", "playbooks", "charts/trainjob/templates"),
    *("cluster/embedded_cluster", "training/src"),
)
DOCUMENTED = ("defaults", "meta")
"""Folders of a role that describe its variables and are printed by nobody."""

RUN: dict[str, tuple[str, ...]] = {
    "helm -n {} status {}": ("lab", "survival"),
    "kubectl create namespace {}": ("other",),
    "kubectl label namespace {} pod-security.kubernetes.io/enforce=restricted": ("other",),
    "kubectl -n {} create secret generic {} --from-file=token=FILE": ("lab", "hub"),
    "kubectl -n {} create secret generic {} --from-literal=VARIABLE=VALUE": ("lab", "trackers"),
    "kubectl -n {} create serviceaccount {}": ("lab", "promoter"),
    "kubectl -n {} delete localqueue default": ("lab",),
    "kubectl -n {} describe deployments,pods": ("lab",),
    "kubectl -n {} describe inferenceservice {}": ("lab", "survival"),
    "kubectl -n {} describe pod {}": ("lab", "survival-read"),
    "kubectl -n {} describe pods": ("lab",),
    "kubectl -n {} describe pvc {}": ("lab", "survival-runs"),
    "kubectl -n {} describe {} {}": ("lab", "pytorchjob", "survival"),
    "kubectl -n {} get inferenceservice {} -o jsonpath='{.metadata.annotations.{}/served-until}'": (
        *("lab", "survival", r"trainlab\.dev"),
    ),
    "kubectl -n {} get pods": ("lab",),
    "kubectl -n {} get pods -l app.kubernetes.io/name={} -o wide": ("lab", "trainlab-prepull"),
    "kubectl -n {} get pods,events": ("lab",),
    "kubectl -n {} logs -l app.kubernetes.io/component=promote,{}={}": ("lab", "trainlab.dev/run", "survival-1"),
    "kubectl -n {} logs -l serving.kserve.io/inferenceservice={}": ("lab", "survival"),
    "kubectl cordon {}": ("n1",),
    "kubectl describe nodes": (),
    "kubectl get --raw /version": (),
    "kubectl get clusterqueues": (),
    "kubectl get workloads -A": (),
    "kubectl get namespace kube-system -o jsonpath={.metadata.uid}": (),
}
"""What fills the gaps of each command that works on the test API server as it stands (tests/api/test_rights.py)."""


def commands() -> dict[str, str]:
    """Return each printed command with a file that prints it."""
    return {command: file for file, text in _texts() for command in _commands(text)}


def variables() -> dict[str, str]:
    """Return the names of what is to be set by `-e NAME=`, with a file that says so."""
    return {name: file for file, text in _texts() for name in re.findall(r"(?<![\w-])-e (\w+)=", text)}


def filled(command: str) -> str:
    """Return a command of RUN with its gaps filled."""
    for value in RUN[command]:
        command = command.replace("{}", value, 1)
    return command


def _commands(text: str) -> Iterator[str]:
    for quoted in re.findall(r"`([^`]+)`", text):
        if PROGRAM.match(quoted):
            yield " ".join(quoted.split())
    for piece in ENDS.split(re.sub(r"`[^`]*`", "", text)):
        if bare := BARE.search(piece):
            yield bare[1].strip()


def _texts() -> Iterator[tuple[str, str]]:
    for part in SPEAKS:
        for path in sorted((REPO / part).rglob("*")):
            name = str(path.relative_to(REPO))
            if path.suffix == ".py":
                yield from ((name, text) for text in _strings(ast.parse(path.read_text(encoding="utf-8"))))
            elif path.suffix in (".yml", ".j2", ".tpl", ".txt") and path.parent.name not in DOCUMENTED:
                yield from ((name, text) for text in _template(path.read_text(encoding="utf-8")))


def _strings(tree: ast.AST) -> Iterator[str]:
    """Yield the strings of a module, without its docstrings."""
    silent = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    silent |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if id(node) in silent:
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(_part(each) for each in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _part(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else _filled(ast.unparse(node))


def _filled(expression: str) -> str:
    """Return what stands for a value: a program's name, or {}."""
    match = re.search(r"(?:\b|_)(kubectl|oc|helm)(?:'\))?\s*\}*$", expression.strip("{}'\" "))
    return match[1] if match else "{}"


def _template(text: str) -> Iterator[str]:
    """Yield the lines of a template, without comments and with {} for its values; in NOTES a command is an indented line."""
    text = re.sub(r"\{\{-?\s*/\*.*?\*/\s*-?\}\}", "", text, flags=re.DOTALL)
    for line in text.splitlines():
        if line.strip().startswith("#"):
            continue
        yield from re.findall(r"\{\{(.*?)\}\}", line)  # one sentence of two, chosen in an expression
        plain = re.sub(r"\{\{(.*?)\}\}(?!\})", lambda found: _filled(found[1]), line).replace("{oc}", "oc")
        indented = re.match(r" {2}((?:kubectl|helm|curl) .*)", plain)
        yield f"`{indented[1].split(' # ')[0].strip()}`" if indented else plain
