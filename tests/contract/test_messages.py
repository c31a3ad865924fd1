"""What messages tell people to set, run or read exists: variables, keys of a phase and a site, playbooks, targets of make."""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
KEYS: dict[str, Any] = json.loads((ROOT / "charts" / "trainjob" / "keys.json").read_text(encoding="utf-8"))
PARTS = (
    "plugins/action",
    "plugins/plugin_utils",
    "roles",
    "playbooks",
    "charts/trainjob/templates",
    "training/src/trainlab",
)


def texts() -> Iterator[tuple[str, str]]:
    """Yield file and text for each string of the Python files, and for each line of the others."""
    for part in PARTS:
        for path in sorted((ROOT / part).rglob("*")):
            name = str(path.relative_to(ROOT))
            if path.suffix == ".py":
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                    if isinstance(node, ast.JoinedStr):
                        yield (
                            name,
                            "".join(
                                str(each.value) if isinstance(each, ast.Constant) else "{}" for each in node.values
                            ),
                        )
                    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                        yield name, node.value
            elif path.suffix in (".yml", ".j2", ".tpl", ".txt", ".yaml"):
                for line in path.read_text(encoding="utf-8").splitlines():
                    yield name, line


@functools.cache
def distinct() -> list[tuple[str, str]]:
    """Return each text of a file once."""
    return list(dict.fromkeys(texts()))


def named(pattern: str) -> dict[str, str]:
    """Return what a pattern's group finds in the texts, with a file."""
    return {found: file for file, text in distinct() for found in re.findall(pattern, text)}


@functools.cache
def variables() -> set[str]:
    """Names of the roles' variables, and of those that a playbook or an inventory reads."""
    known: set[str] = set()
    for file in ROOT.glob("roles/*/meta/argument_specs.yml"):
        specs = yaml.safe_load(file.read_text(encoding="utf-8"))["argument_specs"]
        known |= {name for spec in specs.values() for name in spec.get("options") or {}}
    defaults = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("roles/*/defaults/main.yml"))
    played = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("playbooks/*.yml"))
    return known | set(re.findall(r"\b([A-Za-z_]+) \| default\(", defaults + played))


def test_variables_to_set_exist() -> None:
    found = named(r"(?<![\w-])-e (\w+)=")
    assert len(found) >= 5 and {name: file for name, file in found.items() if name not in variables()} == {}


def test_playbooks_to_run_exist() -> None:
    found = named(r"playbooks/(\w+)\.yml") | named(r"trainlab\.rhoai\.(site|train|serve|verify|workspace|report)\b")
    assert len(found) >= 8 and {name for name in found if not (ROOT / "playbooks" / f"{name}.yml").is_file()} == set()


def test_targets_of_make_exist() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    found = named(r"`make ([a-z-]+)`")
    assert len(found) >= 2 and set(found) <= set(targets), found


@pytest.mark.parametrize("block", ["phase", "site"])
def test_keys_to_set_exist(block: str) -> None:
    """`phase.` has the sections of the kinds of phases, of which each has some."""
    trees = list(KEYS["phase"].values()) if block == "phase" else [KEYS[block]]
    found = named(rf"(?<![\w./-]){block}((?:\.[A-Za-z_]+)+)(?![\w(/{{])")
    files = (".yml", ".yaml", ".json")
    names = {name.replace(".NAME", ".runs"): file for name, file in found.items() if not name.endswith(files)}
    assert (
        len(names) >= 20
        and {name: file for name, file in names.items() if not any(has(tree, name) for tree in trees)} == {}
    )


def has(tree: Any, name: str) -> bool:
    """Tell whether a tree of keys has the key; below an open map (true) there may be any."""
    for part in name.strip(".").split("."):
        if tree is True:
            return True
        if not isinstance(tree, dict) or part not in tree:
            return False
        tree = tree[part]
    return True
