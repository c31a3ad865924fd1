"""Labels and annotations of our own have one domain, defined once in each language."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SAID = {
    "charts/trainjob/templates/_names.tpl": r'define "trainjob.labelDomain" -}}([a-z.]+){{',
    "plugins/plugin_utils/labels.py": r'(?m)^DOMAIN = "([a-z.]+)"$',
    "training/src/trainlab/run/labels.py": r'(?m)^DOMAIN = "([a-z.]+)"$',
    "roles/attendees/vars/main.yml": r"(?m)^__attendees_label: ([a-z.]+)/attendee$",
}
"""The file of each language, and how it defines the domain."""


def test_every_language_says_the_same_domain() -> None:
    domains = {name: re.findall(pattern, (ROOT / name).read_text(encoding="utf-8")) for name, pattern in SAID.items()}
    assert set(map(tuple, domains.values())) == {("trainlab.dev",)}, domains


def test_no_other_place_writes_a_label_out() -> None:
    found = []
    for folder in ("charts", "plugins", "roles", "training/src"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".yaml", ".yml", ".j2", ".tpl", ".txt"):
                lines = path.read_text(encoding="utf-8").splitlines()
                found += [str(path.relative_to(ROOT)) for line in lines if re.search(r"trainlab\.[a-z]+/[a-z]", line)]
    assert found == ["roles/attendees/vars/main.yml"]


def test_namespaces_of_ours_are_projects_of_openshift_ai() -> None:
    """Its dashboard lists those with this label; the two roles that make namespaces set it, with the pod security that they have."""
    made = [ROOT / "roles" / name for name in ("workspace/vars/main.yml", "attendees/templates/attendees.yaml.j2")]
    texts = [path.read_text(encoding="utf-8") for path in made]
    pattern = r'pod-security\.kubernetes\.io/warn: restricted\n(?: *#.*\n)? *opendatahub\.io/dashboard: "true"\n'
    assert [len(re.findall(pattern, text)) for text in texts] == [1, 1]
    assert (
        sum(path.read_text("utf-8").count("pod-security.kubernetes.io/warn") for path in ROOT.glob("roles/*/*/*")) == 2
    )
