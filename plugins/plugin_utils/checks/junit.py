"""Findings as a JUnit file, which CI systems show as tests. Source: the JUnit XML schema of Jenkins' xunit plugin."""

from __future__ import annotations

from xml.etree import ElementTree

from .cluster_state import Finding


def junit(found: list[tuple[str, Finding]]) -> str:
    """Return the XML: an error is a failure, a warning passes with its sentence, what was not checked is skipped."""
    count = [finding.state for _title, finding in found].count
    totals = {
        "tests": str(len(found)),
        "failures": str(count("error")),
        "skipped": str(count("skipped")),
        "errors": "0",
    }
    suite = ElementTree.Element("testsuite", {"name": "trainlab verify", **totals})
    for title, finding in found:
        case = ElementTree.SubElement(suite, "testcase", {"classname": "verify", "name": title})
        if finding.state == "error":
            ElementTree.SubElement(case, "failure", {"message": finding.what}).text = finding.sentence
        elif finding.state == "skipped":
            ElementTree.SubElement(case, "skipped", {"message": finding.what})
        elif finding.state == "warning":
            ElementTree.SubElement(case, "system-out").text = f"warning: {finding.sentence}"
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
