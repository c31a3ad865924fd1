"""docs/reference/troubleshooting.md: the sentences of checks, of the plan and of the machine's check, and what operators report.

Sentences are read from the source: a value that is put in at run time is an ellipsis, a choice between two texts has both.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from fresh import cases
from trainlab.plan.checks import KEYS

from pages.markdown_table import code, table

ROOT = Path(__file__).resolve().parents[2]
PAGE = "docs/reference/troubleshooting.md"
CLUSTER = ROOT / "cluster" / "embedded_cluster"
CHECKS = ROOT / "plugins" / "plugin_utils" / "checks"
PLAN = ROOT / "training" / "src" / "trainlab" / "plan"
STATUSES = ROOT / "tests" / "api_server" / "statuses"
GAP = "..."
SAYS_NOTHING = {"", GAP}
TITLES = {
    "cluster": "Webhooks, queues, gates and clocks",
    "storage": "Storage",
    "resources": "Nodes, GPUs, autoscaling and room",
    "openshift": "OpenShift and its operators",
    "rights": "Rights and secrets",
    "inputs": "Model, image and Helm",
    "created": "After the run",
    "upgrade": "Before an upgrade of OpenShift AI",
}
"""Each module of checks with findings, and its heading."""


class Sentences(ast.NodeVisitor):
    """Collects the calls of some functions, each with the names that are assigned in the function around it."""

    def __init__(self, path: Path, called: set[str]) -> None:
        self.calls: list[tuple[str, list[str]]] = []
        self._called, self._texts = called, dict[str, ast.expr]()
        self.visit(ast.parse(path.read_text(encoding="utf-8")))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Note what is assigned once in it."""
        before, self._texts = self._texts, dict(self._texts)
        for each in ast.walk(node):
            if isinstance(each, ast.Assign) and len(each.targets) == 1 and isinstance(each.targets[0], ast.Name):
                self._texts[each.targets[0].id] = each.value
        self.generic_visit(node)
        self._texts = before

    def visit_Call(self, node: ast.Call) -> None:
        """Note a call of one of the functions with its arguments as texts."""
        if isinstance(node.func, ast.Name) and node.func.id in self._called:
            self.calls.append((node.func.id, [tidy(self._text(argument)) for argument in node.args]))
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "append" and "[]" in self._called:
            self.calls.append(("[]", [tidy(self._text(argument)) for argument in node.args]))
        self.generic_visit(node)

    def visit_List(self, node: ast.List) -> None:
        """Note the sentences of a list, which is how a preflight check returns what is wrong."""
        if "[]" in self._called:
            self.calls += [("[]", [tidy(self._text(each))]) for each in node.elts if isinstance(each, ast.JoinedStr)]
        self.generic_visit(node)

    def _text(self, node: ast.expr, depth: int = 0) -> str:
        if isinstance(node, ast.Constant):
            return str(node.value)
        if isinstance(node, ast.JoinedStr):
            return "".join(
                self._text(part.value if isinstance(part, ast.FormattedValue) else part, depth + 1)
                for part in node.values
            )
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self._text(node.left, depth) + self._text(node.right, depth)
        if isinstance(node, ast.IfExp):
            either = [self._text(part, depth + 1) for part in (node.body, node.orelse)]
            return GAP if SAYS_NOTHING & set(either) else " / ".join(either)
        if isinstance(node, ast.Name) and depth < 3 and node.id in self._texts:
            value = self._texts[node.id]
            if isinstance(value, ast.Constant | ast.JoinedStr | ast.IfExp):
                return self._text(value, depth + 2)
        return GAP


def tidy(text: str) -> str:
    """Return a text with one ellipsis where several values follow each other."""
    return re.sub(r"(?:\.\.\.[ ,;:/'()]*)+\.\.\.", GAP, " ".join(text.split()))


def of_checks() -> Iterator[tuple[str, list[tuple[str, str, str, str]]]]:
    """Yield each heading with (level, message, cause, remedy) of the findings of `playbooks/verify.yml`."""
    for path in sorted(
        CHECKS.glob("*.py"), key=lambda path: list(TITLES).index(path.stem) if path.stem in TITLES else 99
    ):
        calls = [call[1] for call in Sentences(path, {"Finding"}).calls if len(call[1]) > 1]
        rows = [
            (level if level in ("error", "warning") else "error or warning", *[*parts, "", ""][:3])
            for level, *parts in calls
            if level not in ("ok", "skipped") and re.search(r"\w{3}", parts[0])
        ]
        if rows:
            yield TITLES[path.stem], list(dict.fromkeys(rows))


def of_plan() -> list[tuple[str, str, str, str]]:
    """Return (level and code, message, remedy, keys) of the findings of `trainlab plan` about a phase."""
    rows = []
    for path in sorted(PLAN.glob("*.py")):
        for level, (name, *texts) in Sentences(path, {"refuse", "warn"}).calls:
            message, remedy = [*texts[0].rsplit("; ", 1), ""][:2]
            mark = "REFUSED" if level == "refuse" else "warning"
            if re.search(r"\w{3}", message):
                rows.append((f"{mark} [{name}]", message, remedy, code(KEYS.get(name, ""))))
    return list(dict.fromkeys(rows))


def of_chart() -> list[tuple[str, str]]:
    """Return (message, remedy) of what the chart refuses about a cluster and values, as its templates print it."""
    templates = ROOT / "charts" / "trainjob" / "templates"
    printed = re.compile(r'(?:print|fail) (?:\(printf )?"((?:[^"\\]|\\.){20,})"')
    says = [
        tidy(re.sub(r"%[a-z]", GAP, sentence))
        for file in sorted(templates.rglob("*.tpl"))
        for sentence in printed.findall(file.read_text(encoding="utf-8"))
    ]
    parts = [sentence.rsplit("; ", 1) for sentence in dict.fromkeys(says) if re.search(r"\w{3}.*; ", sentence)]
    return [(sentence[0], sentence[1]) for sentence in parts]


def of_machines() -> list[tuple[str, str]]:
    """Return (machine, message) of the cases that end with one."""
    return [
        (name, f"{GAP} ".join(map(readable, case.says)))
        for name, case in cases.CASES.items()
        if case.says and not case.until
    ]


def readable(pattern: str) -> str:
    """Return the pattern of a message as a text: the first of two choices, an ellipsis for what may be anything."""
    text = re.sub(r"\(([^()|]*)\|[^()]*\)", r"\1", pattern)
    text = re.sub(r"\([^()]*\)\?|\w\?", "", text)
    text = re.sub(r"(\\S|\.)\*", f" {GAP} ", text)
    text = re.sub(r"\\d\+", "N", text)
    return tidy(re.sub(r"\\b|\\", "", text))


def of_preflight() -> list[tuple[str]]:
    """Return (message, with its remedy) of what the check of the machine and the reading of the variables refuse."""
    sentences = [
        arguments[0] + (f": {GAP}" if called == "_try" else "")
        for path in [CLUSTER / "tasks" / "preflight.py", *sorted((CLUSTER / "base").glob("*.py"))]
        for called, arguments in Sentences(path, {"UserError", "_try", "[]"}).calls
    ]
    return [(each,) for each in dict.fromkeys(sentences) if len(re.findall(r"[A-Za-z]{2,}", each)) > 3]


def of_operators() -> list[tuple[str, str, str, str]]:
    """Return (message, reason, operators, what follows) of what the recorded operators report when they are not ready."""
    rows: dict[tuple[str, str], tuple[list[str], set[bool]]] = {}
    for path in sorted(STATUSES.glob("*.yaml")):
        for steps in yaml.safe_load(path.read_text(encoding="utf-8"))["sequences"].values():
            reported = [list(complaints(step)) for step in steps]
            for number, each in enumerate(reported):
                for complaint in each:
                    names, passes = rows.setdefault(complaint, ([], set()))
                    if path.stem not in names:
                        names.append(path.stem)
                    passes.add(any(complaint not in later for later in reported[number + 1 :]))
    return [
        (
            message,
            code(reason),
            ", ".join(names),
            "passes"
            if passes == {True}
            else "stays, until its cause is mended"
            if passes == {False}
            else "passes, or stays",
        )
        for (reason, message), (names, passes) in sorted(rows.items(), key=lambda row: row[0][1].lower())
    ]


def complaints(step: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (reason, message) of the conditions of a status that say that something is missing or failed."""
    for each in (step.get("status") or {}).get("conditions") or []:
        bad = str(each.get("status")) == (
            "True" if re.search(r"Error|Degraded|Failed|Pending|Failure", each["type"]) else "False"
        )
        if bad and len(str(each.get("message", "")).split()) > 2:
            yield str(each.get("reason", "")), str(each["message"])


def text() -> str:
    """Return the page."""
    checks = "\n\n".join(
        f"### {title}\n\n{table(('level', 'message', 'cause', 'remedy'), rows)}" for title, rows in of_checks()
    )
    return f"""# Troubleshooting: search for the words of a message

Generated by `make gen` from the code that prints the messages, from the tests of broken machines and from recorded statuses of
operators. A test fails when this page is out of date. `{GAP}` is a value, `/` a choice. What happens when a pod, a rank or a node is
lost: [failures and restarts](../operate/failures.md). Not here? [Collect diagnostics](../operate/collect.md).

## This machine: `make demo`, `make venv`, `make test`

A test starts each of these machines (`make test-fresh`).

{table(("machine", "message, with its remedy"), of_machines())}

What the check of the machine refuses, before anything is created:

{table(("message, with its remedy",), of_preflight())}

## `trainlab plan`

{table(("finding", "message", "remedy", "keys"), of_plan())}

## The chart: `helm install`, row `release` of `playbooks/verify.yml`

All that is wrong is one failure, a line each, with the rules between keys (`trainlab check` says the same).

{table(("message", "remedy"), of_chart())}

## The cluster: `playbooks/verify.yml`

{checks}

## What operators report while they are installed

"Passes": in the recorded sequences another status follows it. `playbooks/platform.yml` waits, and fails with the message when its limit
is over ([limits](../operate/operators.md)).

{table(("message", "reason", "recorded of", "what follows"), of_operators())}
"""
