"""Pushes an image to somebody's registry by name, and asks what it has under a tag; called by trainer_image.py.

skopeo of the root folder speaks to the registry. Login and authority are handed to it in a folder that is gone afterwards.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from embedded_cluster.base import paths, patience, say
from embedded_cluster.builds import rootfs
from embedded_cluster.containers import registry_login
from embedded_cluster.nodes import proxies
from embedded_cluster.tasks import preflight

KEY = "trainlab_image_push"
HOST = re.compile(r"[A-Za-z0-9.-]+(:\d+)?|\[[0-9A-Fa-f:]+\](:\d+)?")
NAME = re.compile(r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*)*")
"""Of a repository: distribution/reference, regexp.go."""
ANSWER_SECONDS = 30.0
LINES_OF_ERROR = 3
REFUSED = re.compile(
    r"unauthorized|authentication required|denied|forbidden|status.* 40[13]|invalid username", re.IGNORECASE
)
ABSENT = re.compile(r"manifest unknown|name unknown|not found|status.* 404", re.IGNORECASE)
AWAY = re.compile(
    r"dial |lookup |connection re|timeout|timed out|deadline exceeded|no route|EOF|proxyconnect|handshake"
)
NOT_STARTED = re.compile(r"^(unshare|mount|setpriv|chroot): .*", re.MULTILINE)
"""What a machine says that lets even root make no namespaces."""
PLAIN = re.compile(r"server gave HTTP response to HTTPS client|first record does not look like a TLS handshake")


@dataclass(frozen=True)
class Target:
    """A repository in a registry (HOST/NAME), the login for it, and a file with the authority of its certificate."""

    repository: str
    login: registry_login.Login | None
    authority: Path | None
    looked: tuple[Path, ...]

    @property
    def host(self) -> str:
        """The registry's name, with its port."""
        return self.repository.partition("/")[0]


def target(repository: str, auth_file: str = "", authority: str = "") -> Target:
    """Read what the user has set; raises say.UserError that names the variable before anything is asked or built."""
    host, name = [*repository.split("/", 1), ""][:2]
    if not (("." in host or ":" in host or host == "localhost") and HOST.fullmatch(host) and NAME.fullmatch(name)):
        raise say.UserError(
            f"{KEY} is {repository}: give HOST/NAME in lower case, without a tag, e.g. registry.example.com/team/trainer; "
            "the tag is a hash of what the image is made of; nothing was built"
        )
    file = Path(authority).expanduser().absolute() if authority else None
    if file and "BEGIN CERTIFICATE" not in (file.read_text(errors="replace") if file.is_file() else ""):
        raise say.UserError(
            f"image_push_ca is {authority}, which is no file with a certificate in PEM; nothing was built"
        )
    login = registry_login.find(repository, auth_file)
    return Target(repository, login, file, tuple(registry_login.files(auth_file)))


def digest_of(to: Target, tag: str) -> str:
    """The digest that the registry has for a tag, empty when it has none; raises say.UserError when it cannot be asked.

    A login is tried by itself: many a registry answers 401 for a repository that the first push will make.
    """
    with _handed(to) as flags:
        pair = to.login.pair() if to.login else None
        if pair:
            words = ["login", *flags(""), "--username", pair[0], "--password-stdin", to.host]
            done = _skopeo(*words, stdin=f"{pair[1]}\n")
            if done.returncode:
                raise say.UserError(f"{explained(to, done.stderr)}; nothing was built")
        words = ["inspect", "--no-tags", "--format", "{{.Digest}}", *flags(""), f"docker://{to.repository}:{tag}"]
        done = _skopeo(*words)
    if done.returncode == 0:
        return done.stdout.strip()
    unknown = ABSENT.search(done.stderr) or (to.login and REFUSED.search(done.stderr))
    if unknown and not NOT_STARTED.search(done.stderr):
        return ""
    raise say.UserError(f"{explained(to, done.stderr)}; nothing was built")


def push(to: Target, tag: str, source: str) -> str:
    """Push `source`, an image in skopeo's words, and return the digest that the registry then has; layers it has are kept.

    Prints a line for each layer. Raises say.UserError with the remedy.
    """
    output: list[str] = []
    with say.step(f"push to {to.repository}:{tag}"), _handed(to) as flags:
        command = ["skopeo", "copy", "--retry-times", "2", *flags("dest-"), source, f"docker://{to.repository}:{tag}"]
        with subprocess.Popen(
            rootfs.command(rootfs.base(), command, env=_environment()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            for line in process.stdout or ():
                output.append(line.rstrip())
                if line.startswith(("Copying", "Writing")):
                    say.info(line.rstrip())
    if process.returncode:
        raise say.UserError(
            f"{explained(to, chr(10).join(output))}; the image is built, and the same command goes on from there"
        )
    result = digest_of(to, tag)
    if not result:
        raise say.UserError(f"{KEY}: {to.host} took {to.repository}:{tag} and does not give it back; ask who runs it")
    return result


def explained(to: Target, output: str) -> str:
    """What skopeo said about a registry as one sentence: variable, registry, reason, remedy."""
    if stopped := NOT_STARTED.search(output):
        rights = f"{KEY}: the image cannot be built here ({stopped[0]}): {preflight.RIGHTS}"
        return rights + preflight.elsewhere(to.repository)
    reason = _reason(output)
    begin = f"{KEY} {to.repository}: {to.host}"
    if "x509: certificate signed by unknown authority" in output:
        if to.authority:
            return f"{begin} has a certificate of another authority than that in {to.authority}; set image_push_ca to the one that signed it"
        return f"{begin} has a certificate of an authority that this machine does not know; set image_push_ca to a file with that authority"
    if "x509:" in output:
        return f"{begin} has no valid certificate for this name ({reason}); name the registry as its certificate does"
    if PLAIN.search(output):
        return f"{begin} speaks HTTP without TLS; give it a certificate, which the nodes need as well"
    if REFUSED.search(output):
        where = f"`podman login --authfile FILE {to.host}` writes one, which {registry_login.KEY} names"
        if not to.login:
            return f"{begin} wants a login, and none of {', '.join(map(str, to.looked))} has one ({reason}); {where}"
        return (
            f"{begin} refuses the login of {to.login.file} ({reason}); the user needs the right to push there, or has another "
            f"password: {where}"
        )
    if not AWAY.search(output):
        return f"{begin} answers with an error ({reason}); try again, or ask who runs it"
    return f"{begin} does not answer ({reason}); check its name and port, the network, and its proxy (https_proxy, no_proxy)"


def _reason(output: str) -> str:
    """The innermost error of skopeo's last line: it puts `level=fatal msg="..."` around all that it went through."""
    lines = [line for line in output.splitlines() if line.strip()][-LINES_OF_ERROR:]
    last = next((line for line in reversed(lines) if "level=fatal" in line), lines[-1] if lines else "no reason given")
    match = re.search(r'msg="(.*)"', last)
    text = (match[1] if match else last).replace('\\"', '"')
    return ": ".join(text.split(": ")[-2:])


def _skopeo(*argv: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    limit = f"{patience.seconds(ANSWER_SECONDS):.0f}s"
    command = ["skopeo", "--command-timeout", limit, *argv]
    return subprocess.run(
        rootfs.command(rootfs.base(), command, env=_environment()),
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )


def _environment() -> dict[str, str]:
    return {"TMPDIR": str(paths.CACHE / "tmp"), **proxies.handed_on(os.environ)}


@contextlib.contextmanager
def _handed(to: Target) -> Iterator[Callable[[str], list[str]]]:
    """A private folder with login and authority; yields a function that names them in flags with a prefix (`dest-`)."""
    (paths.CACHE / "tmp").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="push-", dir=paths.CACHE / "tmp") as name:
        folder = Path(name)
        auth, certificates = folder / "auth.json", folder / "certificates"
        auth.touch(mode=0o600)
        auth.write_text(to.login.document() if to.login else '{"auths": {}}', encoding="utf-8")
        certificates.mkdir()
        if to.authority:
            shutil.copyfile(to.authority, certificates / "ca.crt")
        yield lambda prefix: [f"--{prefix}authfile={auth}", f"--{prefix}cert-dir={certificates}"]
