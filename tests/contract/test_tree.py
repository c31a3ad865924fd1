"""The repository as a whole: one version, the documented tree matches the disk, nothing machine-specific is in it."""

import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import yaml
from trainlab import __version__
from trainlab.config import PHASES

ROOT = Path(__file__).resolve().parents[2]
FOREIGN = ["/".join(("", name, "")) for name in ("work", "farm", "home/[a-z]+")]
"""Folders of machines that the project was written on, as patterns."""


@cache
def tracked() -> list[Path]:
    """Return all files that belong to the repository, including new ones that git does not ignore."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, capture_output=True, check=True)
    names = [name for name in done.stdout.decode().split("\0") if name]
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def text_of(path: Path) -> str:
    """Return the text of a file, empty for a binary one."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def test_one_version() -> None:
    galaxy = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))
    charts = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in (ROOT / "charts").glob("*/Chart.yaml")]
    of_charts = {chart[key] for chart in charts for key in ("version", "appVersion")}
    assert len(charts) == 2 and {galaxy["version"], *of_charts} == {__version__}


def test_told_tree_is_the_disk() -> None:
    page = (ROOT / "docs" / "reference" / "tree.md").read_text(encoding="utf-8")
    block = page.split("## The tree", 1)[1].split("```")[1]
    told = {line.split()[0].rstrip("/") for line in block.strip().splitlines()}
    disk = {path.relative_to(ROOT).parts[0] for path in tracked()}
    hidden = {name for name in disk if name.startswith(".")}
    assert told - hidden == disk - hidden


def test_no_path_of_a_machine() -> None:
    foreign = re.compile("|".join(rf"(?<![\w.*$}}-]){pattern}" for pattern in FOREIGN))
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in tracked()
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if foreign.search(line)
    ]
    assert not found, "\n".join(found)


def test_lock_files_name_no_registry() -> None:
    locks = [path for path in tracked() if path.suffix == ".lock"]
    assert locks
    for path in locks:
        assert not re.search(r"://|^--?(i|f|index-url|find-links|trusted-host)\b", text_of(path), re.MULTILINE), path
        assert "--hash=sha256:" in text_of(path), f"{path}: no hashes"


def test_nothing_edits_the_search_path() -> None:
    """Modules are found as packages: pytest's `pythonpath`, the folder that Python runs, or PYTHONPATH of one command."""
    edit = re.compile(r"\bsys\.path(\[[^]]*\]\s*\+?=|\s*\+?=[^=]|\.(insert|append|extend)\()|\bsite\.addsitedir\(")
    match = [path for path in tracked() if edit.search(text_of(path))]
    assert not match


def test_no_module_hides_a_package() -> None:
    """Nothing in the folders of `pythonpath` shares a name with the standard library or an installed package."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    inside = [path for folder in options["pythonpath"] for path in (ROOT / folder).iterdir()]
    ours = {path.stem for path in inside if path.suffix == ".py" or (path / "__init__.py").exists()} - {"__main__"}
    assert {"embedded_cluster", "api_server", "charts", "trainlab"} <= ours
    assert not ours & (sys.stdlib_module_names | set(packages_distributions()))


def test_a_file_of_the_package_is_named_once() -> None:
    """The content of a module of the Python package is clear without its folder."""
    names = [path.name for path in (ROOT / "training" / "src").rglob("*.py") if path.name != "__init__.py"]
    assert len(names) > 100
    assert sorted(names) == sorted(set(names))


def test_files_that_texts_name_exist() -> None:
    """A docstring that sends its reader to a file does not outlive the file's name."""
    own = [path for path in tracked() if path.suffix == ".py"]
    named = re.compile(r"(?<![\w\"'./{}-])(?:[a-z0-9_]+/)*([a-z0-9_]+\.py)\b(?![\"'])")
    names = {path.name for path in own}
    gone = {path.name: set(named.findall(text_of(path))) - names for path in own}
    assert {name: files for name, files in gone.items() if files} == {}


def test_only_the_package_knows_the_recipes() -> None:
    """What differs between recipes outside of it (protocol, scores, keys) comes from the package, never from a name."""
    folders = ("charts/trainjob/templates", "roles", "plugins", "playbooks")
    known = re.compile(rf"recipe\W.{{0,12}}\b({'|'.join(PHASES)})\b")
    asked = [path for path in tracked() if str(path.relative_to(ROOT)).startswith(folders)]
    assert len(asked) > 100
    assert not [str(path) for path in asked if known.search(text_of(path))]
