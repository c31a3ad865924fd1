"""Our playbooks in the commands that messages print: as they can be typed in the folder in which this one was started."""

from __future__ import annotations

import shlex
from pathlib import Path

from ansible import constants, context

COLLECTION = Path(__file__).resolve().parents[2]


def words(name: str) -> str:
    """Return the arguments of ansible-playbook that run a playbook of ours with the inventory in use, as shell text."""
    return " ".join([*(f"-i {shlex.quote(each)}" for each in _inventories()), _playbook(name)])


def embedded_words() -> str:
    """Return those that bring the embedded cluster up; its inventory is a checkout's default one."""
    playbook = _playbook("local")
    own = COLLECTION / "inventory" / "local"
    return playbook if playbook.endswith(".yml") else f"-i {shlex.quote(short(str(own)))} {playbook}"


def short(file: str) -> str:
    """Return a file below the working directory as the user would type it, for messages."""
    path, here = Path(file).resolve(), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _playbook(name: str) -> str:
    """Return its file in a checkout, elsewhere the name by which Ansible finds it in an installed collection."""
    file = Path("playbooks") / f"{name}.yml"
    return str(file) if file.resolve() == COLLECTION / file else f"trainlab.rhoai.{name}"


def _inventories() -> list[str]:
    """Return what was given as -i, without a default that the same folder has again; Ansible has made its paths absolute."""
    inventories = list(context.CLIARGS.get("inventory") or ())
    return (
        []
        if inventories == constants.DEFAULT_HOST_LIST
        else [each if "," in each else short(each) for each in inventories]
    )
