"""Action plugin checks: see plugins/modules/checks.py."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from xml.etree import ElementTree

from ansible.errors import AnsibleActionFail

from ..plugin_utils.checks import run_all
from ..plugin_utils.checks.cluster_state import ClusterState, Finding, Options
from ..plugin_utils.documented import DocumentedAction
from ..plugin_utils.kube import ApiError, Json, Unreachable, connect

WIDTH = 110


class ActionModule(DocumentedAction):
    """Checks a cluster and changes nothing."""

    def run_on_controller(self, args: Json) -> Json:
        """Return rows, errors, table and junit; findings do not fail this task."""
        api, _version = connect(args["kubeconfig"], args["kube_context"])
        options = Options(**{name: args[name] for name in Options.__dataclass_fields__})
        context = args["context"]
        cluster_state = ClusterState(
            api,
            args["namespace"],
            args["release"],
            context["phase"],
            context["site"],
            context["claims"],
            options,
            context.get("plan") or {},
        )
        try:
            findings = run_all(cluster_state, args["stage"])
        except (ApiError, Unreachable) as error:
            raise AnsibleActionFail(f"the cluster could not be checked: {error}") from error
        return {
            "changed": False,
            "rows": [{"name": title, **asdict(finding)} for title, finding in findings],
            "errors": [f"{title}: {finding.sentence}" for title, finding in findings if finding.state == "error"],
            "table": table(findings),
            "junit": junit(findings),
        }


def table(findings: list[tuple[str, Finding]]) -> str:
    """Return the findings as lines of text: a few lines for a problem, one for what is right."""
    width = max(len(title) for title, _finding in findings)
    lines = []
    for title, finding in findings:
        head = f"    {finding.state:<8} {title:<{width}}  "
        indent = " " * len(head)
        parts = [finding.what, finding.why and f"why: {finding.why}", finding.fix and f"fix: {finding.fix}"]
        text = [line for part in parts if part for line in textwrap.wrap(part, WIDTH, break_on_hyphens=False)]
        lines += [(head if number == 0 else indent) + line for number, line in enumerate(text)]
    return "\n".join(lines)


def junit(findings: list[tuple[str, Finding]]) -> str:
    """Return the XML: an error is a failure, a warning passes with its sentence, what was not checked is skipped."""
    count = [finding.state for _title, finding in findings].count
    totals = {
        "tests": str(len(findings)),
        "failures": str(count("error")),
        "skipped": str(count("skipped")),
        "errors": "0",
    }
    suite = ElementTree.Element("testsuite", {"name": "trainlab verify", **totals})
    for title, finding in findings:
        case = ElementTree.SubElement(suite, "testcase", {"classname": "verify", "name": title})
        if finding.state == "error":
            ElementTree.SubElement(case, "failure", {"message": finding.what}).text = finding.sentence
        elif finding.state == "skipped":
            ElementTree.SubElement(case, "skipped", {"message": finding.what})
        elif finding.state == "warning":
            ElementTree.SubElement(case, "system-out").text = f"warning: {finding.sentence}"
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
