"""An image goes into somebody's registry by name: Distribution itself with TLS of its own authority and a login.

A small image, pushed as the trainer image is; tests/e2e/test_kubernetes.py takes the whole way.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from api_server.registry import Registry
from embedded_cluster.base import locks, paths, say
from embedded_cluster.builds import rootfs
from embedded_cluster.containers import images, oci
from embedded_cluster.tasks import push, trainer_image

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not rootfs.folder("rootfs", rootfs.PACKAGES).is_dir(),
    reason="skopeo runs in the root folder of the embedded cluster, as root",
)
NAME, TAG = "team/trainer", "0123456789ab"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that programs in the root folder see."""
    with tempfile.TemporaryDirectory(prefix="push-test-", dir=paths.CACHE / "tmp") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def registry(folder: Path) -> Iterator[Registry]:
    with Registry(folder / "registry", "127.0.0.1") as one:
        yield one


@pytest.fixture(scope="module")
def image(folder: Path) -> str:
    """The pause image as skopeo names it."""
    oci.write(images.recipes()[(images.PAUSE,)], folder / "pause")
    return f"oci:{folder / 'pause'}"


def test_pushed_once_with_the_digest_that_the_registry_gives(
    registry: Registry,
    image: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Compressed; what a HEAD says is the digest; the second time nothing is built. With GPUs or trackers it is another image."""
    built: list[str] = []
    monkeypatch.setattr(trainer_image, "_in_buildahs_store", lambda ref, *_: built.append(ref))
    monkeypatch.setattr(images, "stored", lambda ref: image)
    monkeypatch.setattr(
        locks, "waiting", lambda *_: contextlib.nullcontext()
    )  # nothing is built that others build as well
    login = registry.login(tmp_path / "auth.json", name=f"{registry.host}/team")
    to = push.target(f"{registry.host}/{NAME}", str(login), str(registry.authority))
    said = []
    for options in ((False, False), (False, False), (True, False), (False, True)):
        trainer_image.build_and_push(to, *options)
        said.append(json.loads(capsys.readouterr().out.splitlines()[-1]))
    tags = [ref.rpartition(":")[2] for ref in built]
    assert tags == [tags[0], f"{tags[0]}-gpu", f"{tags[0]}-tracking"]
    body, head = registry.get(f"{NAME}/manifests/{tags[0]}")
    digest = head["Docker-Content-Digest"]
    assert digest == f"sha256:{hashlib.sha256(body).hexdigest()}"
    assert [one["image"] for one in said] == [f"{registry.host}/{NAME}@{digest}"] * 4
    assert [one["changed"] for one in said] == [True, False, True, True]
    assert {layer["mediaType"] for layer in json.loads(body)["layers"]} == {f"{oci.LAYER}+gzip"}
    assert list((paths.CACHE / "tmp").glob("push-*/auth.json")) == [], "no login is left behind"


def test_what_stops_it_is_a_sentence_with_a_remedy(
    registry: Registry, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is built; the registry's own words are in it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("REGISTRY_AUTH_FILE", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    right, host = registry.login(tmp_path / "right.json"), registry.host
    wrong = registry.login(tmp_path / "wrong.json", password="of yesterday")
    docker = tmp_path / "docker.json"
    docker.write_text(json.dumps({"auths": {host: {}}, "credsStore": "desktop"}), encoding="ascii")
    (tmp_path / "no.json").write_text("{", encoding="ascii")
    other = Registry(tmp_path / "other", "127.0.0.1")
    other.close()
    trusted = str(registry.authority)
    cases: dict[str, tuple[tuple[str, str, str], tuple[str, ...]]] = {
        "authority": ((host, str(right), ""), ("does not know; set image_push_ca to a file with that authority",)),
        "another authority": ((host, str(right), str(other.authority)), ("of another authority than that in",)),
        "password": ((host, str(wrong), trusted), (f"refuses the login of {wrong}", "invalid username/password", "podman login --authfile")),
        "no login": ((host, "", trusted), ("wants a login, and none of", f"{tmp_path}/.docker/config.json", host)),
        "helper": ((host, str(docker), trusted), ("in a credential helper", "image_push_auth_file")),
        "no JSON": ((host, str(tmp_path / "no.json"), trusted), ("not an authentication file",)),
        "no file": ((host, str(tmp_path / "none"), trusted), ("image_push_auth_file is", "no such file")),
        "no certificate": ((host, str(right), str(right)), ("image_push_ca is", "no file with a certificate in PEM")),
        "away": ((other.host, str(right), trusted), (f"{other.host} does not answer", "connection refused", "https_proxy")),
        "name": ((f"https://{host}", str(right), trusted), ("give HOST/NAME in lower case",)),
    }  # fmt: skip
    for what, ((where, login, authority), words) in cases.items():
        with pytest.raises(say.UserError) as error:
            push.digest_of(push.target(f"{where}/{NAME}", login, authority), TAG)
        said = str(error.value)
        assert all(word in said for word in (*words, "nothing was built")), f"{what}: {said}"
    with pytest.raises(say.UserError, match="without a tag"):
        push.target(f"{host}/{NAME}:1")

    to = push.target(f"{host}/{NAME}", str(wrong), trusted)
    with pytest.raises(say.UserError, match=r"refuses the login.*the same command goes on from there"):
        push.push(to, TAG, image)
    full = 'level=fatal msg="writing blob: received unexpected HTTP status: 507 Insufficient Storage"'
    assert "answers with an error (received unexpected HTTP status: 507" in push.explained(to, full)
    said = push.explained(to, "mount: /x: permission denied.")
    assert "cannot be built here (mount: /x: permission denied.): run as root on the machine itself" in said
    assert f"`podman push --digestfile digest {host}/{NAME}`" in said
