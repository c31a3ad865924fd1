"""The Go modules of the cluster share what they can; without that a cold build takes half as long again."""

from pathlib import Path

import pytest
from embedded_cluster.builds import align, modules


def test_families_agree() -> None:
    """Every family uses one version of what its members share."""
    rest = [f"{name}: {path} {version}, family {highest}" for name, path, version, highest in align.differences()]
    assert not rest, "run `cluster/python cluster align`:\n" + "\n".join(rest)


def test_families_are_components() -> None:
    """No family names a component that is gone, and none is in two."""
    names = [name for family in align.FAMILIES for name in family]
    assert len(names) == len(set(names))
    assert {Path(name).name for name in names} <= set(modules.COMPONENTS)


def test_differences_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """An older version is named, with the one it should be, unless its go.mod replaces it; a pre-release is below its release."""
    etcd = {"a": "v1.2.0", "b": "v1.0.0-rc.1", "c": "v1.0.0"}
    versions = {"etcd": (etcd, {"c"}), "coredns": ({"a": "v1.10.0", "b": "v1.0.0", "c": "v2.0.0"}, set())}
    monkeypatch.setattr(align, "FAMILIES", (("etcd", "coredns"),))
    monkeypatch.setattr(align, "required", versions.__getitem__)
    assert list(align.differences()) == [("etcd", "a", "v1.2.0", "v1.10.0"), ("etcd", "b", "v1.0.0-rc.1", "v1.0.0")]
