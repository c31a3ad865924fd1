"""What README and docs/start say to do in a checkout, in fresh shells: the environment of `make venv` is small and has no torch.

What needs a cluster is left out, but the syntax of its playbooks is checked. Real downloads.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from embedded_cluster.base import paths
from embedded_cluster.builds import pyenv
from fresh import checkout
from trainlab import cli

MAX_BYTES = 300_000_000
"""Bytes of the environment."""
PAGES = [paths.REPO / "README.md", *sorted((paths.REPO / "docs" / "start").glob("*.md"))]
RUN = (r"make venv", r"\. \.venv/bin/activate", r"trainlab (check|plan) .+")
CHECKED = r"ansible-playbook .+"
LEFT_OUT = (
    *(r"apt-get install .+", r"git clone .+", r"cd trainlab", r"make demo(-down)?"),  # the fixture clones
    *(r"oc login", r"(helm|kubectl) .+", r"ssh .+", r"export (KUBECONFIG|PATH)=.+"),
)
COMMANDS: Mapping[str, tuple[str, int, str]] = {
    "check": ("check values/quick.yaml", 0, "values/quick.yaml: valid: phase quick"),
    "plan": ("plan values/survival.yaml", 0, "fine: 0 refusals"),
    "schema": ("schema", 0, "json-schema.org"),
    "questions": ("questions faq.csv --out faq", 0, "3 rows read"),
    "ask": ("ask Why? --url http://127.0.0.1:1", 2, "cannot be reached"),
    "watch": ("watch nowhere --once", 2, "no progress there"),
    "gate": ("gate nowhere --dry-run", 2, "nowhere"),
    "report": ("report nowhere", 2, "nowhere"),
    "verify-run": ("verify-run --run-dir nowhere --url http://127.0.0.1:1 --timeout 0.01", 2, "nowhere"),
    "promote": (
        "promote --run-dir x --manifests y --namespace z --owner o",
        2,
        "trainlab promote needs the training stack",
    ),
    "end-lease": ("end-lease --namespace x --name y", 2, "this works only in a pod"),
    "compare": ("compare nowhere elsewhere", 2, "nowhere: no phase.json"),
    "put": ("put faq.csv datasets/faq.csv --kubectl /nowhere/kubectl", 2, "/nowhere/kubectl"),
    "get": ("get datasets/rows --kubectl /nowhere/kubectl", 2, "/nowhere/kubectl"),
    "lesson": ("lesson 1 --check", 1, "missing  change one value: write artifacts/lessons/quick.yaml"),
    "eval": ("eval nowhere --models models", 2, "trainlab eval needs the training stack"),
    "fetch": ("fetch values/quick.yaml --models models", 2, "trainlab fetch needs the training stack"),
    "prepare": ("prepare README.md --out x --tokenizer y", 2, "trainlab prepare needs the training stack"),
    "run": ("run values/quick.yaml --models models", 2, "trainlab run needs the training stack"),
    "room": ("room --engine http://127.0.0.1:1 --state room", 2, "trainlab room needs"),
    "serve": ("serve values/quick.yaml --models models --run-dir x", 2, "trainlab serve needs the training stack"),
}
"""Each command of trainlab: with arguments, its exit code there, and a part of what it prints."""
pytestmark = [pytest.mark.slow, pytest.mark.rest, pytest.mark.xdist_group("without_torch")]


def _blocks() -> list[tuple[str, str]]:
    """Each page with one of its blocks of commands, as far as this machine can run it without a cluster."""
    result = []
    for page in PAGES:
        for block in re.findall(r"^```bash\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            lines = []
            for line in block.splitlines():
                if re.fullmatch(CHECKED, line):
                    lines.append(f"{line} --syntax-check")
                elif any(re.fullmatch(one, line) for one in RUN):
                    lines.append(line)
                else:
                    assert any(re.fullmatch(one, line) for one in LEFT_OUT), f"{page.name}: add to a table: {line}"
            if lines:
                result.append((page.name, "\n".join(lines)))
    return result


class Shell:
    """Fresh shells in a clone of the checkout, whose $TRAINLAB_HOME has the installer's cache only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "checkout"
        checkout.clone(self.folder, os.getuid())
        (folder / "cache").mkdir()
        home = folder / "cache" / "CACHEDIR.TAG"
        home.write_bytes((paths.CACHE / home.name).read_bytes())  # made by trainlab
        for made in paths.CACHE.glob("installer-*/"):
            subprocess.run(["cp", "--archive", "--link", str(made), str(folder / "cache")], check=True)
        ours = str(Path(sys.prefix, "bin"))
        search = os.pathsep.join(
            word for word in os.environ["PATH"].split(os.pathsep) if word != ours and ".venv" not in word
        )
        gone = ("PYTEST_", "MAKE", "MFLAGS", "GIT_", "PYTHON", "VIRTUAL_ENV", "TRAINLAB_", "ANSIBLE_")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(gone)}
        python = os.path.realpath(sys.executable)  # whose installer is in the cache
        self.env = kept | {"TRAINLAB_HOME": str(folder), "PATH": search, "PYTHON": python}

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """Paste a script; returns its exit code and all that it prints."""
        command = ["bash", "-e", "-c", script]
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    """After `make venv`, on the file system of the caches, whose files can be linked."""
    pyenv.installer()
    link = paths.REPO / ".venv"
    linked = link.readlink() if link.is_symlink() else None
    with tempfile.TemporaryDirectory(prefix="without-torch-", dir=paths.CACHE) as folder:
        fresh = Shell(Path(folder))
        began = time.monotonic()
        done = fresh.run("make venv")
        assert done.returncode == 0, done.stdout
        print(f"make venv: {time.monotonic() - began:.1f} s")
        yield fresh
    if linked:
        assert link.readlink() == linked, "of the checkout whose tests run"


def test_it_is_small_and_has_no_torch(shell: Shell) -> None:
    environment = (shell.folder / ".venv").resolve()
    assert environment.is_relative_to(shell.env["TRAINLAB_HOME"])
    size = sum(file.lstat().st_size for file in environment.rglob("*") if file.is_file() and not file.is_symlink())
    print(f"{size / 1e6:.0f} MB")
    assert size < MAX_BYTES
    (packages,) = environment.glob("lib/python3.*/site-packages")
    assert (packages / "ansible").is_dir() and not list(packages.glob("torch*"))


@pytest.mark.parametrize(("page", "block"), _blocks())
def test_blocks_of_commands_work_in_a_fresh_shell(shell: Shell, page: str, block: str) -> None:
    done = shell.run(block)
    assert done.returncode == 0, f"{page}:\n{block}\n{done.stdout}"


def test_each_command_is_run() -> None:
    parser = cli._parser([])
    (commands,) = (action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    assert set(commands) == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_runs_or_names_the_target_with_torch(shell: Shell, name: str) -> None:
    line, code, said = COMMANDS[name]
    (shell.folder / "faq.csv").write_text("question,answer\nWhat is A?,First.\nWhat is B?,Second.\nWhat is C?,Third.\n")
    done = shell.run(f". .venv/bin/activate\ntrainlab {line}")
    assert done.returncode == code and said in done.stdout, done.stdout
    assert "Traceback" not in done.stdout
    if "needs the training stack" in said:
        assert done.stdout.count("\n") == 1 and "run `make venv-dev` in the checkout" in done.stdout
