"""Writes the workshop for Showroom (Red Hat Demo Platform) from the attendee's sheet; `make workshop` calls it with a folder.

Each section of docs/present/attendees.md is a page. Its commands are `solve`, and a check of ours is `validate`.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
SHEET = ROOT / "docs" / "present" / "attendees.md"
FIXED = ROOT / "docs" / "workshop"
CHECKS = {
    "What your laptop needs": (
        "test -s user1.kubeconfig && test -s site.yaml",
        "Clone the repository and write both files.",
    ),
    "Train": ("helm status quick", "Run `helm install` of the page."),
    "Ask": (
        "helm test quick --timeout 10m",
        "The model is not promoted yet, or does not answer: wait, or read `helm status quick`.",
    ),
    "Leave": ("left=$(helm list --short --filter '^quick$'); test -z \"$left\"", "Run `helm uninstall quick`."),
}
"""Section with commands: what its `validate` runs, and what to do where that fails."""
FILES = {"user1.kubeconfig": "trainlab_kubeconfig", "site.yaml": "trainlab_site"}
"""File of an attendee: the key of the user's data that has its content (roles/ocp4_workload_trainlab)."""
Section = tuple[str, str]


def sections(sheet: str) -> list[Section]:
    """Return (title, Markdown) of the sheet's top and of each `##`."""
    title, *rest = re.split(r"^#{1,2} (.+)\n", sheet, flags=re.MULTILINE)[1:]
    pairs = [title, *rest]
    return [(name.strip(), text.strip()) for name, text in zip(pairs[::2], pairs[1::2], strict=True)]


def commands(text: str) -> list[str]:
    """Return the commands of a section, without comments."""
    blocks = re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line]


def asciidoc(text: str) -> str:
    """Return the sheet's kind of Markdown (paragraphs, lists, code, bold, links) as AsciiDoc, for any attendee.

    Raises ValueError for a block, a heading or a table that is not known here.
    """
    out, fenced = list[str](), False
    for line in text.splitlines():
        if line == "```bash" and not fenced:
            out += ['[source,bash,role="execute",subs="attributes+"]', "----"]
            fenced = True
        elif line == "```" and fenced:
            out.append("----")
            fenced = False
        elif "{" in line or (not fenced and line.startswith(("```", "#", "|", "1.", ">"))):
            raise ValueError(
                f"{SHEET.relative_to(ROOT)}: {line}: docs/workshop.py knows paragraphs, lists and bash, without braces"
            )
        elif fenced:
            out.append(line)
        else:
            line = re.sub(r"\[([^]]+)\]\((https?://[^)]+)\)", r"link:\2[\1]", line)
            line = re.sub(r"\*\*(.+?)\*\*", r"*\1*", line)
            out.append(re.sub(r"^- ", "* ", line))
    return "\n".join(out).replace("user1", "{user}")


def files() -> str:
    """Return the commands that write an attendee's files from what the platform knows of them."""
    lines = [
        "In this terminal, the platform knows both files:",
        "",
        '[source,bash,role="execute",subs="attributes+"]',
        "----",
    ]
    for name, key in FILES.items():
        lines += [f"cat > {name.replace('user1', '{user}')} <<'END'", f"{{{key}}}", "END"]
    return "\n".join([*lines, "----"])


def solve(title: str, text: str) -> list[dict[str, Any]]:
    """Return the play that does what a section asks for."""
    first = title == next(iter(CHECKS))
    return [_play(f"{title}, solved", [] if first else [_run("Run the commands of the page", commands(text))])]


def validate(title: str) -> list[dict[str, Any]]:
    """Return the play that says whether an attendee has done what a section asks for; it asks the cluster, not the terminal."""
    command, remedy = CHECKS[title]
    check = _run("Check", [command]) | {"register": "done", "failed_when": False, "changed_when": False}
    report = {
        "check": "{{ done.rc == 0 }}",
        "pass_msg": f"{title}: done.",
        "error_msg": f"{title}: {remedy}\n{{{{ done.stderr }}}}\n",
    }
    return [_play(f"{title}, validated", [check, {"name": "Say so", "validation_check": report}])]


def _run(name: str, script: list[str]) -> dict[str, Any]:
    shell = {"cmd": "\n".join(["set -e", *script]), "chdir": "{{ folder }}/trainlab", "executable": "/bin/bash"}
    return {"name": name, "ansible.builtin.shell": shell, "environment": {"KUBECONFIG": "user1.kubeconfig"}}


def _play(name: str, tasks: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a play that first has checkout and files, as the runner is not the terminal."""
    clone = next(line for line in commands(SHEET.read_text(encoding="utf-8")) if line.startswith("git clone"))
    made: list[dict[str, Any]] = [
        {
            "name": "Clone",
            "ansible.builtin.command": {
                "cmd": clone,
                "chdir": "{{ folder }}",
                "creates": "{{ folder }}/trainlab",
            },
        }
    ]
    for file, key in FILES.items():
        content = f"{{{{ lookup('ansible.builtin.env', '{key.upper()}') }}}}\n"
        written = {"content": content, "dest": f"{{{{ folder }}}}/trainlab/{file}", "mode": "0600"}
        made.append({"name": f"Write {file}", "ansible.builtin.copy": written, "no_log": True})
    folder = "{{ lookup('ansible.builtin.env', 'TRAINLAB_FOLDER') | default('/tmp', true) }}"
    top = {"name": name, "hosts": "localhost", "connection": "local", "gather_facts": False}
    return top | {"vars": {"folder": folder}, "tasks": [*made, *tasks]}


def pages(sheet: str) -> Iterator[tuple[str, str]]:
    """Yield path and text of every generated file; ValueError where sheet and CHECKS differ."""
    (title, top), *rest = sections(sheet)
    asked = [name for name, text in rest if commands(text)]
    if asked != list(CHECKS):
        raise ValueError(
            f"{SHEET.relative_to(ROOT)}: sections with commands are {', '.join(asked)}, and CHECKS in docs/workshop.py has "
            f"{', '.join(CHECKS)}; name each there, in this order, with what its validate runs"
        )
    pages = "content/modules/ROOT/pages"
    yield f"{pages}/index.adoc", f"= {title}\n\n{asciidoc(top)}\n"
    nav = ["* xref:index.adoc[Start]"]
    for number, (name, text) in enumerate(rest, 1):
        module = f"module-{number:02}"
        body = asciidoc(text) + (f"\n\n{files()}" if name == asked[0] else "")
        yield f"{pages}/{module}.adoc", f"= {name}\n\n{body}\n"
        nav.append(f"* xref:{module}.adoc[{number}. {name}]")
        if name in CHECKS:
            for stage, play in (("solve", solve(name, text)), ("validate", validate(name))):
                dumped = yaml.safe_dump(play, sort_keys=False, width=1000)
                yield f"runtime-automation/{module}/{stage}.yml", f"---\n{dumped}"
    yield "content/modules/ROOT/nav.adoc", "\n".join(nav) + "\n"


def main(folder: Path) -> None:
    """Write the content repository into an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(FIXED, folder)
    for name, text in pages(SHEET.read_text(encoding="utf-8")):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
