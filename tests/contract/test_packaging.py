"""What surrounds the collection: dependencies, execution environment, changelog fragments, versions of Ansible."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import ansible
import ansiblelint
import jsonschema
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
EE = ROOT / "images" / "ee" / "execution-environment.yml"
FRAGMENTS = sorted((ROOT / "changelogs" / "fragments").glob("*.y*ml"))


def load(path: Path) -> Any:
    """Return the content of a YAML file."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@cache
def requirements(path: Path) -> dict[str, SpecifierSet]:
    """Return names and version ranges of a requirements file of pip."""
    lines = [line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()]
    parsed = [Requirement(line) for line in lines if line and not line.startswith("-")]
    return {each.name.lower(): each.specifier for each in parsed}


def locked(name: str) -> Version:
    """Return the version that requirements.lock pins, or the image's, which the development environment has, too."""
    locks = [(ROOT / folder / "requirements.lock").read_text(encoding="utf-8") for folder in (".", "images/trainer")]
    match = re.search(rf"^{re.escape(name)}==(\S+)", "\n".join(locks), re.M)
    assert match, f"{name} is in neither requirements.lock"
    return Version(match[1])


def test_collections_are_those_of_galaxy_yml() -> None:
    """requirements.yml has the same names and ranges as the collection's own dependencies, and each has both bounds."""
    listed = {each["name"]: each["version"] for each in load(ROOT / "requirements.yml")["collections"]}
    assert listed == load(ROOT / "galaxy.yml")["dependencies"]
    for name, span in listed.items():
        assert ">=" in span and "<" in span, f"{name}: {span}: name a lowest version and one that is too new"


def test_no_other_collection_is_used() -> None:
    """Each module that a role or playbook uses is Ansible's, ours, or one of a collection that galaxy.yml lists."""
    known = {"ansible.builtin", "trainlab.rhoai", *load(ROOT / "galaxy.yml")["dependencies"]}
    used = {
        name
        for file in [*ROOT.glob("roles/*/tasks/*.yml"), *ROOT.glob("playbooks/*.yml")]
        for name in re.findall(r"^ *(?:- )?([a-z]\w*\.[a-z]\w*)\.[a-z]\w*:", file.read_text(encoding="utf-8"), re.M)
    }
    assert "ansible.builtin" in used
    assert used <= known, used - known


def test_the_collection_at_hand_is_in_its_range() -> None:
    """The tests run with versions inside the promised ranges."""
    folder = Path(ansible.__file__).parents[1] / "ansible_collections" / "kubernetes" / "core"
    manifest = load(folder / "MANIFEST.json")
    span = SpecifierSet(load(ROOT / "galaxy.yml")["dependencies"]["kubernetes.core"])
    assert Version(manifest["collection_info"]["version"]) in span


def test_ansible_is_new_enough() -> None:
    """meta/runtime.yml, the tools and the execution environment agree on Ansible's version."""
    span = SpecifierSet(load(ROOT / "meta" / "runtime.yml")["requires_ansible"])
    assert locked("ansible-core") in span
    assert locked("ansible-core") in Requirement(load(EE)["dependencies"]["ansible_core"]["package_pip"]).specifier


def test_execution_environment_names_what_is_there() -> None:
    """Both definitions match the schema (ansible-lint contains it), and each file that they name exists."""
    schema = json.loads(
        (Path(ansiblelint.__file__).parent / "schemas" / "execution-environment.json").read_text("utf-8")
    )
    definition, own = load(EE), load(ROOT / "meta" / "execution-environment.yml")
    for each in (definition, own):
        jsonschema.validate(each, schema)
    wanted = [definition["dependencies"][key] for key in ("galaxy", "python", "system")]
    for name in [*wanted, *(each["src"] for each in definition["additional_build_files"])]:
        assert (EE.parent / name).is_file(), name
    steps = " ".join(" ".join(each) for each in definition["additional_build_steps"].values())
    for each in definition["additional_build_files"]:
        assert f"_build/{each['dest']}" in steps, f"{each['dest']} is sent and not used"
    assert (EE.parent / definition["dependencies"]["python"]).resolve() == ROOT / own["dependencies"]["python"]


def test_execution_environment_has_the_python_packages() -> None:
    """What `trainlab check` and the plugins import, in ranges that contain the versions of the tests."""
    ranges = requirements(ROOT / "meta" / "ee-requirements.txt")
    project = tomllib.loads((ROOT / "training" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for each in map(Requirement, project["dependencies"]):
        assert ranges.get(each.name.lower()) == each.specifier, each
    assert "kubernetes" in ranges
    for name, span in ranges.items():
        assert locked(name) in span, name


DECLARED = """
import importlib.metadata, re, sys
names, wanted = set(), sys.argv[1].split()
while wanted:
    name = re.match("[A-Za-z0-9._-]+", wanted.pop())[0].lower().replace("_", "-")
    if name not in names:
        names.add(name)
        wanted += [each for each in importlib.metadata.requires(name) or [] if ";" not in each]
packages = importlib.metadata.packages_distributions()
class Others:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top != "trainlab" and top in packages and not {each.lower().replace("_", "-") for each in packages[top]} & names:
            raise ModuleNotFoundError(f"No module named {top!r}", name=top)
sys.meta_path.insert(0, Others())
from trainlab import cli
for line in sys.stdin.read().splitlines():
    try:
        print(line, cli.main(line.split()))
    except SystemExit as ended:
        print(line, ended.code)
"""
WITHOUT_TORCH = """check values/quick.yaml
plan values/survival.yaml
ask Why? --url http://127.0.0.1:1
compare nowhere elsewhere
gate nowhere --dry-run
report nowhere
verify-run --run-dir nowhere --url http://127.0.0.1:1 --timeout 0.01
watch nowhere --once
questions nowhere.csv --out nowhere
"""


def test_the_package_declares_what_its_commands_import() -> None:
    """An execution environment and `pip install` of the wheel have nothing else: site.yml runs `trainlab plan` there."""
    project = tomllib.loads((ROOT / "training" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = " ".join(Requirement(each).name for each in project["dependencies"])
    done = subprocess.run(
        [sys.executable, "-c", DECLARED, names],
        input=WITHOUT_TORCH,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "training" / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and "No module" not in done.stdout + done.stderr, done.stderr
    codes = [
        line.rpartition(" ")[2]
        for line in done.stdout.splitlines()
        if line.startswith(tuple(WITHOUT_TORCH.splitlines()))
    ]
    assert codes == ["0", "0", *["2"] * 7]


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that ansible-builder writes; building it needs a container registry and is not tested."""
    folder = tmp_path_factory.mktemp("context")
    command = [sys.executable, "-m", "ansible_builder", "create", "-f", str(EE), "-c", str(folder)]
    command += ["--output-filename", "Containerfile"]  # otherwise named after the installed container program
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_ansible_builder_takes_the_definition(context: Path) -> None:
    written = _containerfile(context)
    assert "COPY --from=builder /usr/local/bin/helm" in written
    assert 'ARG EE_BASE_IMAGE="registry.access.redhat.com/ubi9/ubi@sha256:' in written


@pytest.fixture(scope="module")
def introspected(context: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The lists of packages that the build installs, as its own step makes them with the collections at hand."""
    collections = tmp_path_factory.mktemp("collections") / "ansible_collections"
    collections.mkdir()
    (collections / "kubernetes").symlink_to(Path(ansible.__file__).parents[1] / "ansible_collections" / "kubernetes")
    (line,) = re.findall(r"^RUN \$PYCMD /output/(scripts/introspect\.py .*)$", _containerfile(context), re.MULTILINE)
    script, *words = line.replace("/tmp/src/", "src/").split()
    argv = [sys.executable, str(context / "_build" / script), *words, str(collections.parent)]
    subprocess.run(argv, cwd=context / "_build", check=True, capture_output=True)
    return {file.name: file.read_text(encoding="utf-8") for file in (context / "_build" / "src").iterdir()}


def _containerfile(context: Path) -> str:
    return (context / "Containerfile").read_text(encoding="utf-8")


def test_a_base_of_ubi_has_the_packages(introspected: dict[str, str]) -> None:
    """Of what any collection asks for on RHEL 9, Red Hat's free repositories have Go, and no client of OpenShift."""
    asked = [line for line in introspected["bindep.txt"].splitlines() if "platform:fedora" not in line and line.strip()]
    assert [line.split()[0] for line in asked] == ["golang"], asked


@pytest.mark.rest
def test_pip_finds_what_the_image_installs(context: Path, introspected: dict[str, str], tmp_path: Path) -> None:
    """Wheels for the Python of the image, all requirements at once."""
    given = dict(re.findall(r'^ARG (\w+)="(.*)"$', _containerfile(context), re.MULTILINE))
    listed, report = tmp_path / "requirements.txt", tmp_path / "report.json"
    listed.write_text(introspected["requirements.txt"], encoding="utf-8")
    python = given["PYPKG"].removeprefix("python")
    wheels = ("--only-binary=:all:", "--python-version", python, "--target", str(tmp_path / "target"))
    argv = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--report", str(report), *wheels]
    argv += ["-r", str(listed), *given["ANSIBLE_INSTALL_REFS"].split()]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = {one["metadata"]["name"].lower() for one in json.loads(report.read_text(encoding="utf-8"))["install"]}
    assert {"ansible-core", "ansible-runner", "kubernetes", "pydantic", "jsonpatch"} <= found


@pytest.mark.parametrize(
    "folder", sorted(path for path in (ROOT / "data").iterdir() if path.is_dir()), ids=lambda path: path.name
)
def test_a_data_set_says_its_license_of_all_its_files(folder: Path) -> None:
    """The trainer image has all of it."""
    notice = " ".join((folder / "LICENSE").read_text(encoding="utf-8").split())
    assert f"(data/{folder.name} of the project trainlab)" in notice
    assert "(all files of this folder and of the folders in it)" in notice and "CC-BY-4.0" in notice
    assert (folder / "README.md").is_file()


def test_the_changelog_has_the_version() -> None:
    """The newest release of changelog.yaml is the version of galaxy.yml or older; a version without an entry needs a fragment."""
    version = load(ROOT / "galaxy.yml")["version"]
    released = load(ROOT / "changelogs" / "changelog.yaml")["releases"]
    assert max(map(Version, released)) <= Version(version)
    assert version in released or FRAGMENTS, f"{version}: no entry in changelog.yaml and no fragment for one"
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").replace("\\", "")
    for each, entry in released.items():
        assert f"## v{each}" in text, f"CHANGELOG.md: {each}: run `antsibull-changelog generate`"
        assert "breaking_changes" not in entry["changes"] or each != min(released, key=Version), (
            "the first breaks nothing"
        )


@pytest.mark.parametrize("path", FRAGMENTS, ids=lambda path: path.stem)
def test_fragment_has_known_sections(path: Path) -> None:
    """Each section is one of changelogs/config.yaml and contains sentences."""
    config = load(ROOT / "changelogs" / "config.yaml")
    known = {name for name, _ in config["sections"]} | {config["trivial_section_name"]}
    content = load(path)
    assert content
    for section, said in content.items():
        if section == config["prelude_section_name"]:
            assert isinstance(said, str)
            continue
        assert section in known, f"{section}: known sections: {', '.join(sorted(known))}"
        for each in said:
            assert isinstance(each, str) and each.endswith("."), f"{section}: {each}: one sentence"


@pytest.mark.slow
def test_antsibull_takes_the_fragments() -> None:
    """The tool's own check of configuration and fragments."""
    done = subprocess.run(
        [sys.executable, "-m", "antsibull_changelog", "lint"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _unused(tree: ast.AST) -> bool:
    """True where a module has a variable or an argument `_` or `bar`, as pylint's disallowed-name looks for them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in ("_", "bar"):
            return True
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            if any(one.arg in ("_", "bar") for one in arguments):
                return True
    return False


def test_sanity_overlooks_what_is_there_and_no_more() -> None:
    """`ansible-test sanity` (make test-ansible) fails on an entry for a file that is gone, and without one for these."""
    texts = {path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "sanity").glob("ignore-2.*.txt")}
    assert len(texts) == 1, "what is overlooked is the same with each ansible-core"
    listed: dict[str, set[str]] = {}
    for line in (ROOT / "tests" / "sanity" / "ignore-2.19.txt").read_text(encoding="utf-8").splitlines():
        name, what = line.split()[:2]
        assert (ROOT / name).is_file(), name
        listed.setdefault(what, set()).add(name)
    released = [path for top in ("cluster", "images", "plugins", "training/src") for path in (ROOT / top).rglob("*.py")]
    named = {str(path.relative_to(ROOT)) for path in released if _unused(ast.parse(path.read_text(encoding="utf-8")))}
    assert listed["pylint:disallowed-name"] == named
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "plugins" / "modules").glob("*.py")}
    assert modules <= listed["validate-modules:missing-gplv3-license"]
    licenses, templates = (len(listed[what]) for what in ("validate-modules:missing-gplv3-license", "yamllint!skip"))
    page = (ROOT / "docs" / "learn" / "architecture.md").read_text(encoding="utf-8")
    assert f"{licenses} licenses, {templates} templates" in page and len(listed) == 3


def test_the_image_runs_as_a_user_without_rights_whose_number_kubernetes_can_check() -> None:
    lines = (ROOT / "images" / "trainer" / "Containerfile").read_text(encoding="utf-8").splitlines()
    user = [line.removeprefix("USER ") for line in lines if line.startswith("USER ")][-1]
    assert user.isdecimal() and int(user) > 0, user
