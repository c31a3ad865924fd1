"""Every `helm install`, `upgrade` and `template` with a chart that people are told to run: its files exist, and it renders.

Told in README, pages, headers of values files, the chart's page and notes, and by roles. What a line does not have itself comes
from where it says: the site file from the tests, another file from the block above it in the page, REPOSITORY from this checkout.
A line with the files of a phase and nothing else is rendered by test_policy.py already.
"""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from charts.rendering import CHART, ROOT, SITE, cases, documents, helm

PLACES = (
    "README.md",
    "docs/**/*.md",
    "values/**/*.yaml",
    "charts/trainjob/README.md",
    "charts/trainjob/templates/**/*",
)
ROLES = ("roles/**/*.yml", "roles/**/*.j2", "inventory/**/*.yml")
CHARTS = ("charts/trainjob", "REPOSITORY/trainjob")
OF_THE_SITE = ("site.yaml", "artifacts/site.yaml")
WORDS = {
    r"\{\{ __phase_values [^}]*\}\}": "values/quick.yaml",
    r"\{\{ \w+ \}\}": "quick",
    r"REGISTRY/NAME@sha256:DIGEST": f"registry.example.com/trainer@sha256:{'0' * 64}",
    r" \.\.\.": "",
}
"""What roles and people put in."""
RENDERED = {tuple(str(Path(file).relative_to(ROOT)) for file in case.files) for case in cases()}


def told() -> list[tuple[str, str]]:
    """Return each line with the file and all that stands before it there."""
    found: dict[str, tuple[str, str]] = {}
    for place in PLACES + ROLES:
        for path in sorted(ROOT.glob(place)):
            if not path.is_file():
                continue
            text = re.sub(r"\\\n\s*", "", path.read_text(encoding="utf-8"))
            text = re.sub(r"(__attendees_install: >-(?:\n  .*)+)", lambda one: one[1].replace("\n  ", " "), text)
            for match in re.finditer(r"helm (?:install|upgrade|template) [^\n`]*", text):
                line = re.split(r"\s+#|\s+\(|\s+>", match[0])[0].strip()
                if (
                    any(chart in line for chart in CHARTS) and " oci://" not in line
                ):  # those: test_release.py, from a registry
                    found.setdefault(line, (f"{path.relative_to(ROOT)}: {line}", text[: match.start()]))
    return list(found.values())


TOLD = told()


def test_none_is_overlooked() -> None:
    """Each phase has one, at each scale; so do the readers of the package and the attendees."""
    lines = "\n".join(line for line, _ in TOLD)
    overlays = ("data", "hardware", "seeds", "room")  # nobody installs them as they are
    every = (path for path in sorted(ROOT.glob("values/**/*.yaml")) if path.parent.name not in overlays)
    values = [str(path.relative_to(ROOT)) for path in every]
    assert [file for file in values if f"-f {file}" not in lines] == []
    assert {"roles/attendees/vars/main.yml", "docs/present/attendees.md"} <= {
        line.partition(": ")[0] for line, _ in TOLD
    }
    assert "charts/trainjob/README.md: helm install survival REPOSITORY/trainjob" in lines


def rendered_elsewhere(line: str) -> bool:
    """Tell whether a line installs the files of a phase and sets nothing."""
    files = tuple(file for file in re.findall(r"-f (\S+)", line) if file not in OF_THE_SITE)
    return files in RENDERED and "--set" not in line


OTHERS = [one for one in TOLD if not rendered_elsewhere(one[0])]


@pytest.mark.parametrize(("line", "before"), OTHERS, ids=[line for line, _ in OTHERS])
def test_what_people_are_told_renders(line: str, before: str, tmp_path: Path) -> None:
    command = line.partition(": ")[2]
    for pattern, word in WORDS.items():
        command = re.sub(pattern, word, command)
    given, arguments = iter(shlex.split(command)[2:]), list[str]()
    for word in given:
        if word in ("--install", "--dry-run=server", "--no-hooks"):
            continue
        if word == "-n":
            next(given)
        elif word in CHARTS:
            arguments.append(str(CHART))
        elif word == "-f":
            file = next(given)
            arguments += ["-f", str(SITE if file in OF_THE_SITE else written(file, before, tmp_path))]
        else:
            arguments.append(word)
    done = helm("template", *arguments)
    job = "Job" if "site.step=prepare" in line else "PyTorchJob"
    assert {"ConfigMap", job} < {each["kind"] for each in documents(done)}


def written(name: str, before: str, folder: Path) -> Path:
    """Return a file of the checkout, or write the last block of YAML that the page shows before the line."""
    if "/" in name:
        assert (ROOT / name).is_file(), name
        return ROOT / name
    block = re.findall(r"```yaml\n(.+?)```", before, re.DOTALL)[-1].replace("REVISION", "0" * 40)
    assert set(yaml.safe_load(block)) <= {"preset", "phase", "site"}
    (folder / name).write_text(block, encoding="utf-8")
    return folder / name
