"""What exists is kept, or refused with what would be lost: another node count, another version, a damaged state file."""

from __future__ import annotations

import ipaddress
import json
import os
from pathlib import Path
from typing import Any

import pytest
from embedded_cluster.base import home, identity, paths, programs, running, system
from embedded_cluster.base.say import UserError
from embedded_cluster.builds import modules, toolchain
from embedded_cluster.containers import image_store, images, oci
from embedded_cluster.nodes import cluster, host, kept, layout
from embedded_cluster.tasks import demo

RUN = "share/rwx/pvc-1_trainlab-demo_survival-runs/survival-60e88a1c/manifest.json"
LOCAL = "nodes/n1/root/var/lib/local-path/pvc-2_trainlab-ada_workspace/notebook.ipynb"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a stopped cluster of two nodes with two volumes, made by this version."""
    result = tmp_path / "cluster"
    monkeypatch.setattr(paths, "CLUSTER", result)
    monkeypatch.setattr(paths, "LOCK", tmp_path / "lock")
    monkeypatch.delenv(kept.WORD, raising=False)
    home.make(result)
    for name in (RUN, LOCAL):
        (result / name).parent.mkdir(parents=True)
        (result / name).write_text("x")
    _made_with(kept.made_with(2))
    return result


def _made_with(settings: dict[str, str] | None) -> None:
    running.state_file().write_text(json.dumps({"nodes": ["n1", "n2"], "made_with": settings}))


def _files(top: Path) -> list[str]:
    return sorted(str(file.relative_to(top)) for file in top.rglob("*") if file.is_file())


def test_the_same_cluster_is_kept() -> None:
    assert kept.require(2) and kept.require(2, recreate=True)


def test_without_a_cluster_there_is_nothing_to_keep(folder: Path) -> None:
    """Nor in what an `up` that did not get far leaves: nobody had a kubeconfig yet."""
    running.state_file().unlink()
    assert not kept.require(1)


def test_who_names_no_number_of_nodes_gets_the_cluster_that_is_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else `make cluster` after `NODES=1 make demo` would be refused, with a word that removes what it holds."""
    monkeypatch.delenv("NODES", raising=False)
    _made_with(kept.made_with(1))
    assert kept.count() == demo.node_count() == 1
    monkeypatch.setenv("NODES", "2")
    assert demo.node_count() == 2
    running.state_file().unlink()
    assert kept.count() == 2


def test_another_node_count_is_refused_before_anything_is_built(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "make_parts", lambda: pytest.fail("builds"))
    before = _files(folder)
    with pytest.raises(UserError) as refused:
        cluster.up(1)
    assert str(refused.value) == (
        f"the cluster in {folder} cannot be kept: it was made with NODES=2, asked is NODES=1. A new one would lose these volumes: "
        "trainlab-ada/workspace (1 MiB), trainlab-demo/survival-runs (1 MiB, 1 run). To keep it, use the settings and the version "
        "of trainlab that it was made with. To lose it: RECREATE=1 with make demo or make cluster, `up --recreate`, or make "
        "demo-down. Nothing was changed"
    )
    assert _files(folder) == before


@pytest.mark.parametrize("asked", ["flag", "variable"])
def test_the_word_lets_it_go(asked: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    if asked == "variable":
        monkeypatch.setenv(kept.WORD, "1")
    assert not kept.require(1, recreate=asked == "flag")
    assert "is made anew, as RECREATE asks: it was made with NODES=2, asked is NODES=1" in capsys.readouterr().out


@pytest.mark.parametrize("given", ["", "0"])
def test_only_1_is_the_word(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one is refused, also where there is nothing to lose."""
    monkeypatch.setenv(kept.WORD, given)
    with pytest.raises(UserError, match="cannot be kept"):
        kept.require(1)
    monkeypatch.setenv(kept.WORD, "yes")
    with pytest.raises(UserError, match=r"^RECREATE=yes: give 1 to remove a cluster"):
        kept.require(2)


@pytest.mark.parametrize("state", ["", "{", json.dumps({"nodes": ["n1", "n2"], "fingerprint": "0123"})])
def test_one_of_an_earlier_version_or_damaged_is_refused(state: str) -> None:
    running.state_file().write_text(state)
    with pytest.raises(UserError, match=r"state\.json does not say what it was made with: .*survival-runs.*RECREATE=1"):
        kept.require(2)


def test_another_version_and_another_network_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "version", lambda name: f"v0.{len(name)}.0")
    monkeypatch.setattr(identity, "VARIABLES", {ipaddress.IPv4Network("10.9.0.0/16"): "TRAINLAB_POD_SUBNET"})
    was = kept.made_with(2)
    assert kept.differences(2) != []
    _made_with(was | {"etcd": "v3.5.0", "TRAINLAB_POD_SUBNET": "10.8.0.0/16"})
    assert kept.differences(2) == [
        "it was made with TRAINLAB_POD_SUBNET=10.8.0.0/16, asked is TRAINLAB_POD_SUBNET=10.9.0.0/16",
        "it was made with etcd=v3.5.0, asked is etcd=v0.4.0",
    ]


def test_many_volumes_are_counted_and_none_is_said(folder: Path) -> None:
    for number in range(9):
        (folder / f"share/rwx/pvc-{number}_many_claim{number}").mkdir()
    with pytest.raises(UserError, match=r"many/claim7 \([01] MiB\) and 3 more\. To keep"):
        kept.require(1)
    programs.remove(str(folder / "share"))
    programs.remove(str(folder / "nodes"))
    with pytest.raises(UserError, match="would lose no volumes, but all objects in it"):
        kept.require(1)


def test_a_comment_another_go_and_patience_change_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values count, not the text of files; what is built is of the same version whatever compiled it."""
    monkeypatch.setattr(toolchain, "go_version", lambda: pytest.fail("asks for Go"))
    monkeypatch.setenv("TRAINLAB_PATIENCE", "7")
    package = folder.parent / "package"
    package.mkdir()
    text = (paths.PACKAGE / "containerd.toml").read_text()
    monkeypatch.setattr(paths, "PACKAGE", package)
    (package / "containerd.toml").write_text(f"# another comment\n{text}")
    assert kept.differences(2) == []
    (package / "containerd.toml").write_text(text.replace("overlayfs", "native"))
    assert kept.differences(2) == ["the configuration of the nodes is another one in this version of trainlab"]


@pytest.mark.parametrize("changed", [{"SYSCTLS": {"kernel/panic": "11"}}, {"NO_ELECTION": []}])
def test_another_value_is_another_configuration(changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in changed.items():
        monkeypatch.setattr(layout, name, value)
    assert kept.differences(2) == ["the configuration of the nodes is another one in this version of trainlab"]


def test_a_removal_that_is_killed_leaves_no_cluster(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of its files are no cluster that `up` could keep, or has to refuse for."""

    def killed(*_argv: str, **_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(programs, "run", killed)
    with pytest.raises(KeyboardInterrupt):
        host._remove_folder()
    assert (folder / RUN).exists() and not kept.exists() and home.ours(folder)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_nodes_share_the_memory(count: int) -> None:
    """Each sees the whole machine's, of which it may give its share to pods."""
    total = 24 * 2**30 + 1
    reserved = int(layout._share(count, total)["systemReserved"]["memory"])
    assert 0 <= total - count * (total - reserved) < count
    assert (reserved == 0) is (count == 1)


def test_the_machines_memory_is_read() -> None:
    assert system.memory_total() == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < system.memory_available() <= system.memory_total()


BEFORE, SINCE, AFTER = "2026-11-28T03:50:00Z", 1795838400.0, "2026-11-28T04:00:01Z"


def _objects(
    started: str = AFTER, ready: bool = True, available: int = 1, renewed: str = AFTER
) -> list[dict[str, Any]]:
    """A node, its lease, and a Deployment's pod on it, as the API server tells of them after the nodes were started."""
    conditions = {"conditions": [{"type": "Ready", "status": str(ready)}]}
    running = {"containerStatuses": [{"state": {"running": {"startedAt": started}}}]}
    labels = {"app": "served"}
    return [
        {"kind": "Node", "metadata": {"name": "n1"}, "status": conditions},
        {"kind": "Lease", "metadata": {"name": "n1"}, "spec": {"renewTime": renewed}},
        {"kind": "Pod", "metadata": {"namespace": "a", "labels": labels | {"x": "y"}}, "status": conditions | running},
        {"kind": "Pod", "metadata": {"namespace": "b", "labels": labels}, "status": {"phase": "Pending"}},
        {
            "kind": "Deployment",
            "metadata": {"namespace": "a"},
            "spec": {"selector": {"matchLabels": labels}},
            "status": {"availableReplicas": available} if available else {},
        },
    ]


@pytest.mark.parametrize(
    ("objects", "stale"),
    [
        (_objects(), False),
        (_objects(started=BEFORE), True),  # no kubelet has looked at it yet
        (_objects(ready=False, available=1), True),  # nor the controller of Deployments
        (_objects(ready=False, available=0), False),
        ([], True),  # the API server does not answer
    ],
)
def test_what_is_of_before_the_start_is_waited_for(
    objects: list[dict[str, Any]], stale: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_listed", lambda *_: objects)
    assert cluster._stale(SINCE) is stale


@pytest.mark.parametrize(
    ("objects", "since", "ready"),
    [
        (_objects(), SINCE, True),
        (_objects(renewed=BEFORE), SINCE, False),  # Ready is what it was when the machine stopped
        (_objects(renewed=BEFORE), 0.0, True),
        (_objects(ready=False), SINCE, False),
    ],
)
def test_a_node_is_ready_once_its_kubelet_is_heard_of(
    objects: list[dict[str, Any]], since: float, ready: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_listed", lambda *_: objects)
    assert cluster.ready_nodes(since) == {"n1": ready}


def test_images_that_came_while_the_nodes_were_off_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the image store, whose blobs lie as in an image layout."""
    layout_folder, store = tmp_path / "layout", tmp_path / "store"
    (tmp_path / "file").write_text("x")
    oci.write(oci.Recipe({"file": tmp_path / "file"}), layout_folder)
    manifest = oci.manifest_of(layout_folder)
    blobs = store / "root" / image_store.BLOBS
    blobs.parent.mkdir(parents=True)
    (layout_folder / "blobs/sha256").rename(blobs)
    monkeypatch.setattr(image_store, "folder", lambda: store)
    image_store.write_refs({"localhost/x:1": {"digest": manifest["digest"], "recipe": ""}})
    loaded: list[image_store.Source] = []
    monkeypatch.setattr(images, "_to_nodes", loaded.append)
    monkeypatch.setattr(running, "nodes", list)
    cluster._load_missing()
    (source,) = loaded
    assert source.refs == ("localhost/x:1",)
    assert source.manifest == {key: manifest[key] for key in ("mediaType", "digest", "size")}
    found = oci.blobs_of(source.layout, source.manifest)
    assert len(found) == 3 and all((blobs / digest).is_file() for digest in found)
