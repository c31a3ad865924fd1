"""Generated values files: never a traceback, and Helm and the CLI accept and refuse the same."""

import hashlib
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trainlab.config.loading import load_values
from trainlab.config.schema import allowed_keys
from trainlab.errors import UserError

from charts.rendering import SITE, VALUES, template

PHASES = sorted(path.stem for path in VALUES.glob("*.yaml"))
SCALARS = [
    *("null", "~", "true", "false", "yes", "no", "on", "off", "''", "' '"),
    *("0", "1", "-1", "4.0", "1e1", "1E+2", "1.5e3", ".5", "5.", "1:30", "010", "0x1F", "0b11", "1_000", "+3", "-0.0"),
    *("9007199254740991", "9007199254740993", "1e400", ".inf", ".nan", "1e-7", "0.1"),
    *("text", "'1'", "4Gi", "4GB", "300m", "2026-01-01", "=", "'{}'", "auto", "sft", "dpo", "vllm", "accuracy"),
    *("foo bar", "pvc:../..", "pvc:a/b", "'pvc:/a'", "builtin:digits", "parent:llama-2.4M", "hf:a/b", "\u00e9", "'^('"),
    *("[]", "{}", "[1]", "[a, a]", "[null]", "{a: 1}", "[[1]]", "[{length: 32, share: 1}]"),
    f"hf:a/b@{'0' * 40}",
    "x" * 3000,
]
"""Values as they are written in YAML."""


def _paths(keys: dict[str, Any], at: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for key, below in keys.items():
        yield (*at, key)
        if isinstance(below, dict):
            yield from _paths(below, (*at, key))


KEYS = sorted(
    {path for keys in allowed_keys()["phase"].values() for path in _paths(keys, ("phase",))}
    | set(_paths(allowed_keys()["site"], ("site",)))
    | set(_paths({"preset": allowed_keys()["preset"]}, ()))
    | {("global",), ("phase",), ("site",), ("phase", "train", "epoch"), ("site", "x"), ("y",)}
)
CHANGES = st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(SCALARS)), min_size=1, max_size=3)
LENIENT = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None)


def _text(changes: list[tuple[tuple[str, ...], str]]) -> str:
    """Return the file in which each key has its value; if a key is given twice, the last."""
    tree: dict[str, Any] = {}
    for path, scalar in changes:
        block = tree
        for part in path[:-1]:
            block = block.setdefault(part, {}) if isinstance(block.get(part, {}), dict) else {}
        block[path[-1]] = scalar
    return _written(tree, 0) if tree else ""


def _written(tree: dict[str, Any], depth: int) -> str:
    lines = []
    for key, value in tree.items():
        below = f"\n{_written(value, depth + 1)}" if isinstance(value, dict) else f" {value}\n"
        lines.append(f"{'  ' * depth}{key}:{below}")
    return "".join(lines)


def refused(phase: str, file: Path) -> str:
    """Return the CLI's objection to a file, empty when it accepts it. Other errors are raised: a traceback to a user."""
    try:
        load_values([VALUES / f"{phase}.yaml", file])
    except UserError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def written(folder: Path, text: str) -> Path:
    """Write a file named after its content, so that Helm's result for it is cached."""
    file = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.yaml"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.slow
@settings(LENIENT, max_examples=400)
@given(phase=st.sampled_from(PHASES), changes=CHANGES)
def test_no_traceback(folder: Path, phase: str, changes: list[tuple[tuple[str, ...], str]]) -> None:
    file = written(folder, _text(changes))
    for line in filter(None, refused(phase, file).splitlines()):
        assert ": " in line and len(line) < 2000


@pytest.mark.slow
@settings(LENIENT, max_examples=50)
@given(phase=st.sampled_from(PHASES), changes=CHANGES)
def test_helm_and_the_cli_agree(folder: Path, phase: str, changes: list[tuple[tuple[str, ...], str]]) -> None:
    file = written(folder, _text(changes))
    _agree(phase, file, one=len(changes) == 1)


@pytest.mark.parametrize(
    ("key", "scalar"),
    [
        *itertools.product(["phase.train.batch_size"], ["1e1", "4.0", "1:30", "null", "010", "1_000", "4.5"]),
        *itertools.product(["phase.seed"], ["9007199254740991", "9007199254740993", "1e400"]),
        *itertools.product(["global", "site", "phase.stage", "phase.train"], ["{}", "null"]),
        ("phase.model.source", "pvc:../.."),
        *itertools.product(["phase.resources.cpu"], ["4Gi", "'0'", "0.0", "0m", "0.5"]),
        ("phase.resources.memory", "0Gi"),
        ("phase.title", "x" * 1_000_000),
        ("site.storage.runs.existing", "My_Claim"),
        ("site.hfTokenSecret", "a b"),
    ],
    ids=lambda one: one[:40],
)
def test_awkward_values(key: str, scalar: str, folder: Path) -> None:
    file = written(folder, _text([(tuple(key.split(".")), scalar)]))
    _agree("survival", file)


def _agree(phase: str, file: Path, one: bool = True) -> None:
    """Both accept a file or both refuse it; for `one` mistake they name the same key. Of several, each its first."""
    files, told = (str(VALUES / f"{phase}.yaml"), str(file)), refused(phase, file)
    done = template(files)
    if "site.images.trainer: missing" in done.stderr:  # the file took it away, and no phase needs one to be checked
        done = template((*files, str(SITE)))
    assert bool(done.returncode) == bool(told), (
        f"{file.read_text()[:500]}\nHelm: {done.stderr[:800]}\nCLI: {told[:800]}"
    )
    if not one:
        return
    if "execution error" in done.stderr:
        sentence = done.stderr.split("): ", 1)[1].splitlines()[0]
        assert sentence.split(":")[0].split(" is ")[0] in told, f"Helm: {sentence}\nCLI: {told}"
    elif told:
        keys = [key.split("/") for key in re.findall(r"at '/([^']*)'", done.stderr)]
        blocks = {
            ".".join(key[: end + 1]) for key in keys for end in range(len(key))
        }  # the CLI may refuse the whole block
        assert not keys or any(f"{block}: " in told or f"{block} is " in told for block in blocks), (
            f"Helm: {done.stderr}\nCLI: {told}"
        )


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_an_empty_file_changes_nothing(text: str, folder: Path) -> None:
    file = written(folder, text)
    assert refused("survival", file) == "" and template((str(VALUES / "survival.yaml"), str(file))).returncode == 0


@pytest.mark.parametrize(
    "text", ["phase: &a {train: *a}", "phase: &a [*a]", "a: &a [1, 2]\n? *a\n: 1\n", "? [a]\n: 1\n"]
)
def test_what_is_no_file_of_values(text: str, folder: Path) -> None:
    file = written(folder, text)
    assert str(file) in refused("survival", file)
    assert template((str(VALUES / "survival.yaml"), str(file))).returncode != 0


def test_aliases_that_grow_without_end(folder: Path) -> None:
    levels = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 9))
    file = written(folder, f"l0: &l0 [x]\n{levels}\n")
    assert "aliases make more than" in refused("survival", file)
