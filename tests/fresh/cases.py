"""Machines on which something is missing, old, full or odd: each works, or ends with one sentence with the remedy.

Run by test_bad_machines.py. A case is a machine, a command, how it ends, and patterns of its output. `setup` is all
that is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

from embedded_cluster.builds import apt

from fresh.fresh_machine import Machine, part

PREPARED = apt.PACKAGES
STEP = r"==> (Go 1\.|build \d+ of|wheels of|Python environment)"
"""The first step after all prerequisites were found."""


@dataclass(frozen=True)
class Case:
    """A machine, a command, and the expected result."""

    machine: Machine
    command: str = "make demo"
    until: str = ""
    """The line that shows that it works, where it is ended; without one it has to end by itself, with `code`."""
    code: int = 2
    says: tuple[str, ...] = ()
    """Patterns; each on one line, case-insensitive."""
    never: tuple[str, ...] = ()


def go(version: str) -> str:
    """Return a setup with a go command of this version."""
    return f"printf '%s\\n' '#!/bin/sh' 'echo go{version}' > /usr/local/bin/go\nchmod 755 /usr/local/bin/go\n"


def system(**keys: str) -> str:
    """Return a setup that makes this another distribution: its os-release, no apt, and nothing that only we need."""
    lines = "".join(f'{key.upper()}="{value}"\n' for key, value in keys.items())
    return f"rm -f /etc/os-release /usr/bin/apt* /usr/bin/dpkg* /usr/bin/mmdebstrap /bin/ip /sbin/ip\ncat > /etc/os-release <<'END'\n{lines}END\n"


def manager(name: str) -> str:
    """Return a setup with a package manager that only records its arguments."""
    return f"printf '%s\\n' '#!/bin/sh' 'echo \"$0 $*\" >> /asked' > /usr/bin/{name}\nchmod 755 /usr/bin/{name}\n"


OLD_PYTHON = part("python39", "/usr/local/bin/python3")
ONLY_OLD_PYTHON = "mv /usr/bin/python3.11 /usr/lib/python-in-truth\n" + OLD_PYTHON
NO_PYTHON = "rm /usr/bin/python3*\n"
MACOS = (
    part("uname", "/usr/local/bin/uname")
    + part("darwin.py", "/usr/lib/python3.11/sitecustomize.py")
    + "rm /etc/os-release\n"
)
UBUNTU = {"id": "ubuntu", "id_like": "debian", "version_id": "24.04", "pretty_name": "Ubuntu 24.04.3 LTS"}
FEDORA = {"id": "fedora", "version_id": "42", "pretty_name": "Fedora Linux 42 (Server Edition)"}
RHEL = {"id": "rhel", "id_like": "fedora", "version_id": "9.6", "pretty_name": "Red Hat Enterprise Linux 9.6 (Plow)"}
SUSE = {"id": "opensuse-leap", "id_like": "suse opensuse", "version_id": "15.6", "pretty_name": "openSUSE Leap 15.6"}
HOLDER = part("holder.py", "/usr/local/bin/holder") + "holder 5 &\nuntil [ -e /run/held ]; do sleep 0.1; done\n"
VPN = "ip link add vpn0 type veth peer name vpn1\nip link set vpn1 up\nip address add 10.8.0.2/24 dev vpn0\nip link set vpn0 up\n"
NEEDED = r"trainlab needs Python 3\.11 to 3\.13"
NO_CLUSTER = "this machine cannot host the cluster"
UNREACHED = r"error: .*cannot reach .*proxy"

CASES = {
    # the network
    "no network": Case(Machine(network=False), says=(UNREACHED, "http_proxy")),
    "no network, nothing of Debian missing": Case(
        Machine(network=False, more=PREPARED), says=(UNREACHED, "https_proxy")
    ),
    "no network, a plain user": Case(Machine(network=False, more=PREPARED, user="user"), says=(NO_CLUSTER, UNREACHED)),
    # Go
    "no Go": Case(
        Machine(more=PREPARED),
        "make binaries",
        STEP,
        says=(r"==> Go 1\.26\S*",),
    ),
    "another Go": Case(
        Machine(more=PREPARED, setup=go("1.99.0") + "echo 'exit 1' >> /usr/local/bin/go"),
        "make binaries",
        STEP,
        says=(r"==> Go 1\.26\S*",),
    ),
    # Python; test_first_mile has 3.13, Debian 13's
    "Python 3.9 only": Case(
        Machine(more=PREPARED, setup=ONLY_OLD_PYTHON),
        says=(rf"error: python3 is 3\.9\S*.*{NEEDED}.*apt-get install python3.*PYTHON=",),
    ),
    "Python 3.9 first, 3.11 beside it": Case(Machine(more=PREPARED, setup=OLD_PYTHON), until=STEP),
    "Python 3.9 named": Case(
        Machine(more=PREPARED, setup=OLD_PYTHON),
        "make demo PYTHON=/usr/local/bin/python3",
        says=(rf"error: /usr/local/bin/python3 is 3\.9\S*.*{NEEDED}",),
    ),
    "no Python": Case(
        Machine(more=PREPARED, setup=NO_PYTHON),
        says=(rf"error: no python3?( was)? found.*{NEEDED}.*apt-get install python3",),
    ),
    "no Python for make test": Case(
        Machine(more=PREPARED, setup=NO_PYTHON), "make test", says=(r"error: no python3?( was)? found",)
    ),
    "no ensurepip, root": Case(Machine(), until=STEP, says=(r"==> Debian packages: .*python3-venv",)),
    "no ensurepip, a plain user": Case(
        Machine(user="user"), "make test", says=(r"error: .*python3.*sudo apt-get install python3-venv",)
    ),
    # what a login or a disk may lack
    "HOME unset": Case(Machine(more=PREPARED, without=("HOME",)), until=STEP),
    "HOME unset, a plain user": Case(Machine(more=PREPARED, user="user", without=("HOME",)), until=STEP),
    "LANG=C": Case(Machine(more=PREPARED, env={"LANG": "C"}), until=STEP),
    "no LANG": Case(Machine(more=PREPARED, without=("LANG",)), until=STEP),
    "umask 077": Case(Machine(more=PREPARED), "umask 077 && make demo", until=STEP),
    "a proxy that does not answer": Case(
        Machine(more=PREPARED, env=dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")),
        says=(UNREACHED, "https_proxy"),
    ),
    # the network of the cluster
    "a VPN's route": Case(
        Machine(network=False, more=PREPARED, setup=f"{VPN}ip route add 10.0.0.0/8 via 10.8.0.1"),
        "cluster/python cluster check || true",
        code=0,
        never=("overlap", r"10\.0\.0\.0/8"),
    ),
    "a route to the cluster's own subnet": Case(
        Machine(network=False, more=PREPARED, setup=f"{VPN}ip route add 10.248.3.0/24 via 10.8.0.1"),
        "cluster/python cluster check",
        code=3,
        says=(NO_CLUSTER, r"10\.248\.3\.0/24.*TRAINLAB_POD_SUBNET.*remove"),
    ),
    # apt
    "apt's lock is held": Case(
        Machine(setup=HOLDER),
        until=r"==> Can this machine",
        says=(r"python3 \(process \d+\).*wait",),
    ),
    # other systems
    "Ubuntu 24.04, a plain user": Case(
        Machine(user="user", setup=system(**UBUNTU)), says=(NO_CLUSTER, "sudo apt-get install python3-venv")
    ),
    "Fedora 42": Case(
        Machine(more=PREPARED, setup=system(**FEDORA) + manager("dnf")),
        until=STEP,
        says=(NO_CLUSTER, r"dnf install .*iproute\b"),
        never=("apt-get", "iproute2"),
    ),
    "RHEL 9": Case(
        Machine(more=PREPARED, setup=system(**RHEL) + manager("dnf")),
        until=STEP,
        says=(NO_CLUSTER, r"dnf install .*iproute\b"),
        never=("apt-get", "iproute2"),
    ),
    "RHEL 9 with its Python 3.9": Case(
        Machine(setup=system(**RHEL) + manager("dnf") + ONLY_OLD_PYTHON),
        says=(rf"error: python3 is 3\.9\S*.*{NEEDED}.*dnf install python3\.12.*PYTHON=",),
        never=("apt-get",),
    ),
    "openSUSE": Case(
        Machine(more=PREPARED, setup=system(**SUSE) + manager("zypper")),
        until=STEP,
        says=(NO_CLUSTER, r"zypper install .*iproute2"),
        never=("apt-get",),
    ),
    "openSUSE without Python": Case(
        Machine(setup=system(**SUSE) + manager("zypper") + NO_PYTHON),
        says=(rf"error: no python3?( was)? found.*{NEEDED}.*zypper install python31",),
        never=("apt-get",),
    ),
    "macOS": Case(
        Machine(user="user", more=PREPARED, setup=MACOS),
        says=(r"error: .*Linux.*macOS 15\.5: brew install",),
        never=("apt-get",),
    ),
    "macOS without Python": Case(
        Machine(user="user", setup=MACOS + NO_PYTHON),
        says=(rf"error: no python3?( was)? found.*{NEEDED}.*brew install python",),
        never=("apt-get",),
    ),
    # what users type
    "a phase that is not there": Case(
        Machine(more=PREPARED), "PHASE=nothing make demo", says=(r"error: PHASE=nothing: .*phases: .*survival",)
    ),
    "too many nodes": Case(Machine(more=PREPARED), "NODES=9 make demo", says=(r"error: NODES=9: give 1 to 4",)),
    "a TRAINLAB_HOME that is somebody else's": Case(
        Machine(
            more=PREPARED,
            env={"TRAINLAB_HOME": "/opt/theirs"},
            setup="mkdir -p /opt/theirs/cache\ntouch /opt/theirs/cache/data",
        ),
        says=(r"error: /opt/theirs\S* .*(not made by trainlab|TRAINLAB_HOME)",),
    ),
}
