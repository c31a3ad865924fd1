"""The chart as a package: the checks of chart-testing and chart-verifier, and a repository over HTTP.

Of chart-testing: `ct lint` itself. Of chart-verifier, whose Go module is not to be had: profile partner 1.4, has-notes of
community, and what only the profile developer-console 1.1 has; not images-are-certified, which asks Red Hat's catalog,
chart-testing and cluster-is-not-eol, which need a cluster, and signature-is-valid, which passes over an unsigned chart.
"""

import base64
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from trainlab.room.helm_repository import repository

from charts.packages import packaged, served
from charts.rendering import (
    CHART,
    HELMS,
    KUBERNETES,
    ROOT,
    SITE,
    Document,
    binary,
    documents,
    environment,
    helm,
    template,
    with_service,
)
from charts.upstream import from_module

CI = sorted((CHART / "ci").glob("*-values.yaml"))
META: Document = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
NAME = f"{META['name']}-{META['version']}"
REPOSITORY = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["repository"]
OF_CT = ("lintconf.yaml", "chart_schema.yaml")
"""What it brings for yamllint and for yamale, in its folder etc."""


@pytest.mark.parametrize("name", HELMS)
def test_ct_lints_the_chart(name: str, tmp_path: Path) -> None:
    """Bare metadata, values, and `helm lint` with each file of ci, with what `ct` brings; with a key of nobody it fails."""
    done = ct_lint(CHART, name, tmp_path / "as it is")
    assert done.returncode == 0 and "All charts linted successfully" in done.stdout, done.stdout + done.stderr
    assert all(f"ci/{file.name}" in done.stdout for file in CI)
    other = tmp_path / "trainjob"
    shutil.copytree(CHART, other)
    with (other / "Chart.yaml").open("a", encoding="utf-8") as file:
        file.write("nobody: knows\n")
    # ct may lose what yamale says of the key: it no longer reads once the process has ended
    assert ct_lint(other, name, tmp_path / "changed").returncode == 1


def ct_lint(chart: Path, name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `ct lint`, but for what it asks of a git server: the version of an earlier commit, and accounts of maintainers."""
    folder.mkdir()
    (folder / "helm").symlink_to(binary(name))
    for file in OF_CT:
        (folder / file).write_text(from_module("chart-testing", f"etc/{file}"), encoding="utf-8")
    given = ("--charts", chart, "--lint-conf", OF_CT[0], "--chart-yaml-schema", OF_CT[1])
    command = [
        binary("chart-testing"),
        "lint",
        *given,
        "--check-version-increment=false",
        "--validate-maintainers=false",
    ]
    path = f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"  # yamllint and yamale are beside this Python
    env = {"PATH": path, "HOME": str(folder)}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_the_maintainer_is_an_account() -> None:
    """`ct lint` asks the host that has the sources: the only account that we can name is their owner."""
    assert not META.get("deprecated")
    assert [one["name"] for one in META["maintainers"]] == [REPOSITORY.split("/")[-2]]


@pytest.mark.parametrize("file", [None, *CI], ids=lambda file: file.name if file else "bare")
@pytest.mark.parametrize("name", HELMS)
def test_helm_lint_passes(file: Path | None, name: str) -> None:
    """As the check helm-lint of chart-verifier runs it, and strictly; with each Helm, and bare."""
    done = helm("lint", str(CHART), "--strict", *(("-f", str(file)) if file else ()), name=name)
    assert done.returncode == 0 and "[ERROR]" not in done.stdout, done.stdout + done.stderr
    assert "1 chart(s) linted, 0 chart(s) failed" in done.stdout and "[WARNING]" not in done.stdout, done.stdout


@pytest.mark.parametrize("name", HELMS)
@pytest.mark.parametrize("file", CI, ids=lambda file: file.name)
def test_the_values_for_ci_install(file: Path, name: str) -> None:
    """`ct install` takes them without any other, with a generated name of this form."""
    done = helm("template", "trainjob-abcdefghij", str(CHART), "-f", str(file), name=name)
    assert {"ConfigMap", "Pod"} < {each["kind"] for each in documents(done)}


def test_the_values_for_ci_differ() -> None:
    """A phase that is carried, at both scales, and one of one's own; both training APIs."""
    assert len(CI) >= 3
    kinds = [
        {each["kind"] for each in with_service(documents(helm("template", "x", str(CHART), "-f", str(file))))}
        for file in CI
    ]
    assert {"PyTorchJob", "TrainJob", "ServingRuntime"} <= set().union(*kinds)
    assert [one for one in kinds if "ServingRuntime" not in one], "none leaves the server out"


def test_metadata_is_that_of_the_project() -> None:
    assert META["sources"] == [REPOSITORY] and META["home"] == REPOSITORY
    releases = yaml.safe_load((ROOT / "meta" / "releases.yml").read_text(encoding="utf-8"))
    oldest = min(int(each["openshift"][0].split(".")[1]) for each in releases.values())
    assert META["kubeVersion"] == f">=1.{oldest + 13}.0-0", "OpenShift 4.N is Kubernetes 1.(N+13)"


@pytest.mark.parametrize("name", HELMS)
def test_an_older_cluster_is_refused(name: str) -> None:
    """And the oldest of a vendor, which has a suffix, is not."""
    command = (str(binary(name)), "template", "demo", str(CHART), "-f", str(CI[0]), "--kube-version")
    env = environment()
    for version, accepted in ((f"v{KUBERNETES}-eks.1", True), (f"v{KUBERNETES}+aadcf85", True), ("v1.28.15", False)):
        done = subprocess.run([*command, version], capture_output=True, text=True, check=False, env=env)
        assert (done.returncode == 0) is accepted, done.stderr
        assert accepted or "chart requires kubeVersion" in done.stderr


def test_the_icon_needs_no_network() -> None:
    head, _, data = META["icon"].partition(",")
    assert head == "data:image/svg+xml;base64"
    assert base64.b64decode(data) == (CHART / "icon.svg").read_bytes()
    for element in ElementTree.fromstring((CHART / "icon.svg").read_text(encoding="utf-8")).iter():
        assert not [key for key in element.attrib if "href" in key] and not element.tag.endswith("script")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a repository."""
    return packaged(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def members(packages: Path) -> dict[str, str]:
    """The text of each file of the archive, by its path inside the chart."""
    with tarfile.open(packages / f"{NAME}.tgz") as archive:
        files = {one.name.removeprefix("trainjob/"): archive.extractfile(one) for one in archive if one.isfile()}
        return {name: file.read().decode("utf-8") for name, file in files.items() if file}


def test_the_room_packs_what_helm_packs(packages: Path) -> None:
    """File by file, as trainlab room serves them; only times and the order of entries are its own."""
    made = repository(ROOT / "charts")
    assert made.keys() == {path.name for path in packages.iterdir()}
    for path in packages.glob("*.tgz"):
        with tarfile.open(path) as theirs, tarfile.open(fileobj=io.BytesIO(made[path.name])) as own:
            contents = [
                {one.name: file.read() for one in archive if (file := archive.extractfile(one))}
                for archive in (theirs, own)
            ]
        plain = [{n: b for n, b in each.items() if not n.endswith("/Chart.yaml")} for each in contents]
        assert plain[0] == plain[1]
        meta = [{n: yaml.safe_load(b) for n, b in each.items() if n.endswith("/Chart.yaml")} for each in contents]
        assert meta[0] == meta[1], "helm package writes it anew"


VERIFIER: dict[str, Callable[[dict[str, str]], Any]] = {
    "is-helm-v3": lambda files: yaml.safe_load(files["Chart.yaml"])["apiVersion"] == "v2",
    "has-readme": lambda files: "README.md" in files,
    "contains-test": lambda files: any(re.fullmatch(r"templates/tests/.*\.yaml", name) for name in files),
    "contains-values": lambda files: len(yaml.safe_load(files["values.yaml"])) > 0,
    "contains-values-schema": lambda files: len(json.loads(files["values.schema.json"])) > 0,
    "has-kubeversion": lambda files: "||" not in yaml.safe_load(files["Chart.yaml"])["kubeVersion"],
    "not-contains-crds": lambda files: not any(name.startswith("crds/") for name in files),
    "not-contain-csi-objects": lambda files: (
        not any(re.search("(?m)^kind: *CSIDriver", text) for text in files.values())
    ),
    "required-annotations-present": lambda files: yaml.safe_load(files["Chart.yaml"])["annotations"][
        "charts.openshift.io/name"
    ],
    "has-notes": lambda files: "templates/NOTES.txt" in files,
    "not-contain-values-schema-remote-ref": lambda files: not re.search(r'"\$ref": "[^#]', files["values.schema.json"]),
}


@pytest.mark.parametrize("check", VERIFIER)
def test_chart_verifier(check: str, members: dict[str, str]) -> None:
    assert VERIFIER[check](members)


def test_the_package_carries_everything(members: dict[str, str]) -> None:
    """The pages, the presets, the values for CI, with which chart-verifier installs it; not the picture that Chart.yaml holds."""
    files = {str(path.relative_to(CHART)) for path in CHART.rglob("*") if path.is_file()}
    assert members.keys() == files - {"icon.svg"}
    assert {"README.md", "presets.json", "ci/local-values.yaml"} <= members.keys()


def test_its_page_names_what_exists(members: dict[str, str]) -> None:
    """The README is read where the checkout is not: its links stay in the package. values.yaml lists every phase, it the first ones."""
    page = members["README.md"]
    for link in re.findall(r"\]\(([^)#\s]+)\)", page):
        assert link in members or link.startswith("https://"), link
    presets = json.loads(members["presets.json"])
    listed = [name for row in re.findall(r"^\| (`.+?) \|", page, re.MULTILINE) for name in re.findall("`(.+?)`", row)]
    assert len(listed) >= 8 and set(listed) <= set(presets)
    assert f"[{', '.join(presets)}] Name of the phase" in " ".join(members["values.yaml"].replace("#", "").split())
    assert META["kubeVersion"].strip(">=").removesuffix(".0-0") in page


@pytest.fixture(scope="module")
def url(packages: Path) -> Iterator[str]:
    """The address of the repository on loopback."""
    with served(packages) as address:
        yield address


@pytest.mark.parametrize("name", HELMS)
def test_a_user_installs_from_the_repository(name: str, url: str, tmp_path: Path) -> None:
    """As they would: add the repository, look, lint, render; the same as from the checkout with values files."""
    env = environment() | {"HOME": str(tmp_path)}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [str(binary(name)), *arguments], capture_output=True, text=True, check=False, env=env, cwd=tmp_path
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("repo", "add", "trainlab", url)
    run("repo", "update")
    (found,) = json.loads(run("search", "repo", "trainjob", "-o", "json"))
    assert (found["name"], found["version"]) == ("trainlab/trainjob", META["version"])
    assert "charts.openshift.io/name" in run("show", "chart", "trainlab/trainjob")
    shown = run("show", "values", "trainlab/trainjob")
    assert "# [string] Kueue LocalQueue in the namespace" in shown and "[all; number > 0, <= 100; 3]" in shown
    assert run("show", "readme", "trainlab/trainjob").strip() == (CHART / "README.md").read_text("utf-8").strip()

    run("pull", "trainlab/trainjob", "--untar")
    assert "0 chart(s) failed" in run("lint", "trainjob")
    sets = ("--set", "preset.phase=survival,preset.scale=local", "-f", str(SITE), "--kube-version", KUBERNETES)
    rendered = run("template", "demo", "trainlab/trainjob", "--namespace", "lab", *sets)
    files = tuple(str(ROOT / "values" / each) for each in ("survival.yaml", "local/survival.yaml"))
    assert rendered == template(files, name=name).stdout
    assert run("template", "demo", "trainjob", "--repo", url, "--namespace", "lab", *sets) == rendered
    assert run("template", "demo", f"{url}/{NAME}.tgz", "--namespace", "lab", *sets) == rendered
    assert run("template", "demo", "./trainjob", "--namespace", "lab", *sets) == rendered


def test_the_index_is_for_any_server_or_for_one(packages: Path, tmp_path: Path) -> None:
    """Relative addresses, or those below URL."""
    for folder, url in (
        (packages, ""),
        (packaged(tmp_path, "URL=https://charts.example.com/a"), "https://charts.example.com/a/"),
    ):
        (entry,) = yaml.safe_load((folder / "index.yaml").read_text(encoding="utf-8"))["entries"]["trainjob"]
        assert entry["urls"] == [f"{url}{NAME}.tgz"] and entry["kubeVersion"] == META["kubeVersion"]
        assert sorted(path.name for path in folder.iterdir()) == [
            "index.yaml",
            f"room-{META['version']}.tgz",
            f"{NAME}.tgz",
        ]
