"""The collection as `ansible-galaxy collection install` leaves it: complete, and it does what the checkout does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from plugins.checking import REVIEW

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
CARRIED = (
    "charts",
    "cluster",
    "data",
    "docs",
    "images",
    "inventory",
    "meta",
    "playbooks",
    "plugins",
    "roles",
    "values",
)
"""Folders that are in the collection as a whole; of training/ only src."""


def tool(name: str, *arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a program of Ansible in `cwd`, without any variable of this shell that affects it."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "PYTHONPATH"))}
    command = [str(Path(sys.executable).with_name(name)), *arguments]
    home = {"ANSIBLE_HOME": str(cwd / ".ansible")}
    return subprocess.run(command, cwd=cwd, env=kept | home | env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty working folder with collections/, where this collection was built into and installed from a file."""
    empty = tmp_path_factory.mktemp("installed")
    built = tool("ansible-galaxy", "collection", "build", str(ROOT), "--output-path", str(empty), cwd=empty)
    assert built.returncode == 0, built.stderr
    (file,) = empty.glob("trainlab-rhoai-*.tar.gz")
    options = ("--no-deps", "--offline", "-p", str(empty / "collections"))
    done = tool("ansible-galaxy", "collection", "install", str(file), *options, cwd=empty)
    assert done.returncode == 0, done.stdout + done.stderr
    return empty


@pytest.fixture
def installed(folder: Path) -> Path:
    """The folder of the installed collection."""
    return folder / "collections" / "ansible_collections" / "trainlab" / "rhoai"


def play(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ansible-playbook like a user who has only installed the collection."""
    return tool("ansible-playbook", *arguments, cwd=folder, ANSIBLE_COLLECTIONS_PATH=str(folder / "collections"))


def test_nothing_is_left_out_and_nothing_is_too_much(installed: Path) -> None:
    """Every file of the included folders is there with its mode; tests and caches are not."""
    listed = subprocess.run(
        [
            "git",
            "-C",
            str(ROOT),
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
            *CARRIED,
            "training/src",
            ":!docs/*.py",
            ":!docs/pages",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    tracked = {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}
    assert {name for name in tracked if not (installed / name).is_file()} == set()
    for name in tracked:
        assert os.access(installed / name, os.X_OK) == os.access(ROOT / name, os.X_OK), name
    found = {str(path.relative_to(installed)) for path in installed.rglob("*") if path.is_file()}
    strange = {name for name in found - tracked if name.split("/")[0] in CARRIED or name.startswith("training/src")}
    assert strange == set()
    tops = {name.split("/")[0] for name in found}
    assert not tops & {"bench", "molecule", "tests"}
    everything = subprocess.run(["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, check=True).stdout
    ours = {name.split("/")[0] for name in everything.splitlines()} | {"MANIFEST.json", "FILES.json"}
    assert tops <= ours, "what tools left in the checkout"


def test_roles_find_their_files(installed: Path) -> None:
    """What a role references relative to itself exists there."""
    named = 0
    for file in sorted(installed.glob("roles/*/vars/main.yml")):
        for path in re.findall(r"role_path ~? ?[^/\n]*'?(/\.\./\.\.[\w/.]*)", file.read_text(encoding="utf-8")):
            assert Path(f"{file.parents[1]}{path}").exists(), f"{file}: {path}"
            named += 1
    assert named >= 4
    context = yaml.safe_load((installed / "roles/image/vars/main.yml").read_text(encoding="utf-8"))["__image_context"]
    assert all((installed / each).exists() for each in context)


def test_playbooks_are_found_by_name(folder: Path, installed: Path) -> None:
    names = [f"trainlab.rhoai.{path.stem}" for path in sorted(installed.glob("playbooks/*.yml"))]
    done = play(folder, *names, "--syntax-check", "-i", str(installed / "inventory" / "openshift"))
    assert done.returncode == 0 and len(names) >= 14, done.stdout + done.stderr


def example(installed: Path, folder: Path, role: str) -> str:
    """Write the play of a role's README below the working folder and return its name."""
    (text,) = re.findall(
        r"```yaml\n(.*?)```", (installed / "roles" / role / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    file = folder / "plays" / f"{role}.yml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return str(file.relative_to(folder))


def test_plays_of_the_roles_readmes_are_right(folder: Path, installed: Path) -> None:
    names = [example(installed, folder, path.name) for path in sorted((installed / "roles").iterdir())]
    done = play(folder, *names, "--syntax-check")
    assert done.returncode == 0 and len(names) >= 11, done.stdout + done.stderr


@pytest.mark.rest
def test_roles_work_in_a_play_of_ones_own(cluster: Any, folder: Path, installed: Path) -> None:
    """Without an inventory: what the role is not given has shared defaults, among them the cluster of KUBECONFIG.

    What it writes is relative to where the command was started, in a folder that it makes.
    """
    env = {"ANSIBLE_COLLECTIONS_PATH": str(folder / "collections"), "KUBECONFIG": str(cluster.kubeconfig)}
    done = tool("ansible-playbook", example(installed, folder, "phase"), cwd=folder, **env)
    assert done.returncode == 0 and '"msg": "fine: 0 refusals' in done.stdout, done.stdout + done.stderr
    cluster.objects[REVIEW] = {"status": {"allowed": True}}
    done = tool("ansible-playbook", example(installed, folder, "verify"), cwd=folder, **env)
    rows = json.loads((folder / "artifacts" / "verify.json").read_text(encoding="utf-8"))
    assert done.returncode != 0 and "Traceback" not in done.stdout + done.stderr
    assert any(row["state"] == "error" for row in rows)
    assert any("/namespaces/trainlab-demo" in path for _, path in cluster.asked), cluster.asked


def test_without_a_cluster(folder: Path, installed: Path) -> None:
    """A playbook that needs none succeeds; one that needs one says what is missing."""
    inventory = ("-i", str(installed / "inventory" / "kubernetes"))
    done = play(folder, "trainlab.rhoai.platform", *inventory, "-e", json.dumps({"platform_operators": []}))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the cluster's operators are left as they are" in done.stdout
    done = play(folder, "trainlab.rhoai.preflight", *inventory, "-e", "trainlab_kubeconfig=nowhere")
    assert done.returncode != 0
    assert "trainlab_kubeconfig: " in done.stdout + done.stderr
    said = " ".join((done.stdout + done.stderr).split())
    local = f"-i {installed.relative_to(folder) / 'inventory' / 'local'} trainlab.rhoai.local"
    assert f"no such file; bring the embedded cluster up with `ansible-playbook {local}`" in said, said


@pytest.mark.rest
def test_a_site_file_is_where_the_command_was_started(cluster: Any, folder: Path, installed: Path) -> None:
    """Not in the collection, which an update replaces."""
    given = {"trainlab_kubeconfig": str(cluster.kubeconfig), "trainlab_site": {"images": {"trainer": "r.example/t:1"}}}
    arguments = ("trainlab.rhoai.image", "-i", str(installed / "inventory" / "kubernetes"), "-e", json.dumps(given))
    # a shell sets PWD
    env = {"ANSIBLE_COLLECTIONS_PATH": str(folder / "collections"), "PWD": str(folder)}
    done = tool("ansible-playbook", *arguments, cwd=folder, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / "artifacts" / "site.yaml").is_file() and not (installed / "artifacts").exists()


@pytest.mark.rest
def test_the_same_findings_as_from_the_checkout(cluster: Any, folder: Path, installed: Path, tmp_path: Path) -> None:
    """Values, the check of them and all checks of the cluster: the same rows, of which some are errors on a bare cluster."""
    rows = []
    cluster.objects[REVIEW] = {"status": {"allowed": True}}
    given = {"trainlab_kubeconfig": str(cluster.kubeconfig), "phase": "lyrics"}
    for number, (cwd, playbook, inventory) in enumerate(
        [(ROOT, "playbooks/preflight.yml", ROOT), (folder, "trainlab.rhoai.preflight", installed)]
    ):
        out = tmp_path / f"{number}.json"
        arguments = (playbook, "-i", str(inventory / "inventory" / "openshift"), "-e", json.dumps(given))
        path = {"ANSIBLE_COLLECTIONS_PATH": str(folder / "collections")} if cwd == folder else {}
        done = tool("ansible-playbook", *arguments, "-e", f"verify_json={out}", cwd=cwd, **path)
        assert out.exists(), done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr
        rows.append(json.loads(out.read_text(encoding="utf-8")))
    assert rows[0] == rows[1]
    assert any(row["state"] == "error" for row in rows[0])


@pytest.mark.rest
def test_the_same_plan_as_from_the_checkout(cluster: Any, folder: Path, installed: Path) -> None:
    """Findings with their numbers, the rows of the data set counted from the collection's own copy."""
    said = []
    given = json.dumps({"trainlab_kubeconfig": str(cluster.kubeconfig), "phase": "survival"})
    for cwd, playbook, inventory in ((ROOT, "playbooks/plan.yml", ROOT), (folder, "trainlab.rhoai.plan", installed)):
        arguments = (playbook, "-i", str(inventory / "inventory" / "kubernetes"), "-e", given)
        path = {"ANSIBLE_COLLECTIONS_PATH": str(folder / "collections")} if cwd == folder else {}
        done = tool("ansible-playbook", *arguments, cwd=cwd, **path)
        assert done.returncode == 0, done.stdout + done.stderr
        said.append(re.findall(r"(?:plan of|warning \[)[^\n\"]*", done.stdout))
    assert said[0] == said[1] and len(said[0]) == 1 and "0 warnings" in said[0][0], (
        "warning [unknown-data] without its copy"
    )
