"""Which routes of the host take addresses from the cluster: those to one of its networks or to a part of it.

routes.json is what `ip -4 -json route show table all` prints with docker, libvirt, a VPN with 10.0.0.0/8 and 172.16.0.0/12, and
WireGuard with 10.245.3.0/24 and a table of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from embedded_cluster.base import identity
from embedded_cluster.nodes import host

ROUTES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("routes.json").read_text(encoding="utf-8"))


def _of(*devices: str) -> list[dict[str, Any]]:
    return [route for route in ROUTES if route.get("dev") in devices]


def test_only_the_more_specific_route_is_named() -> None:
    """Route, device and the variable that is the remedy; docker, libvirt and the VPN's wide routes do not matter."""
    assert host.conflicts(ROUTES) == [
        "the host's route 10.245.3.0/24 (dev wg0) is inside the cluster's subnet 10.245.0.0/16: set TRAINLAB_POD_SUBNET to "
        "a network that is free here, or remove that route"
    ]


def test_what_a_wider_route_leads_to_is_not_cut_off() -> None:
    """A company's 10.0.0.0/8: its name server, the gateway, and who types this by ssh."""
    routes = [
        {"dst": "default", "gateway": "10.246.0.1", "dev": "eth0"},
        {"dst": "x", "gateway": "10.246.0.2", "dev": identity.LINK},
    ]
    assert host.cut_off(routes, ["10.243.0.53", "192.0.2.1", "fd00::1"], "10.246.7.7 50000 10.0.0.9 22") == [
        "the gateway 10.246.0.1 of this machine is inside the cluster's subnet 10.246.0.0/24: "
        "set TRAINLAB_NODE_SUBNET to a network that is free here",
        "the name server 10.243.0.53 of this machine is inside the cluster's subnet 10.243.0.0/16: "
        "set TRAINLAB_SERVICE_SUBNET to a network that is free here",
    ]
    assert host.cut_off([], ["nonsense"], "UNKNOWN 65535 UNKNOWN 65535") == []
    assert "the ssh client 10.246.0.7" in host.cut_off([], [], "10.246.0.7 50000 10.246.0.9 22")[0]


@pytest.mark.parametrize("devices", [("docker0", "br-3f2a"), ("tun0",), ("virbr0",), ("lo", "eth0")])
def test_others_do_not_block(devices: tuple[str, ...]) -> None:
    assert _of(*devices)
    assert host.conflicts(_of(*devices)) == []


@pytest.mark.parametrize(
    ("route", "variable"),
    [
        ({"dst": "10.246.0.0/24", "dev": "tun0"}, "TRAINLAB_NODE_SUBNET"),
        ({"dst": "10.246.0.0/25", "dev": "tun0"}, "TRAINLAB_NODE_SUBNET"),
        ({"type": "local", "dst": "10.246.0.7", "dev": "eth0"}, "TRAINLAB_NODE_SUBNET"),
        ({"dst": "10.243.0.0/16", "dev": "tl-second"}, "TRAINLAB_SERVICE_SUBNET"),
        ({"type": "blackhole", "dst": "10.245.9.0/26"}, "TRAINLAB_POD_SUBNET"),
    ],
)
def test_equal_and_narrower_ones_block(route: dict[str, Any], variable: str) -> None:
    (said,) = host.conflicts([route])
    assert f"set {variable} to" in said and f"(dev {route.get('dev', '-')})" in said


@pytest.mark.parametrize(
    "theirs", ["default", "10.0.0.0/8", "10.246.0.0/23", "10.244.0.0/16", "172.30.0.0/16", "10.128.0.0/14"]
)
def test_wider_ones_and_the_usual_ones_of_others_do_not(theirs: str) -> None:
    assert host.conflicts([{"dst": theirs, "dev": "tun0"}]) == []


def test_our_own_link_is_no_conflict() -> None:
    """The routes of a cluster that runs already."""
    assert (
        host.conflicts([{"dst": "10.246.0.0/24", "dev": "trainlab0"}, {"dst": "10.243.0.0/16", "dev": "trainlab0"}])
        == []
    )


def test_a_network_is_named_once_per_device() -> None:
    """A connected network comes with a local and a broadcast route."""
    same = [{"dst": dst, "dev": "eth0"} for dst in ("10.246.0.0/24", "10.246.0.5", "10.246.0.255")]
    assert len(host.conflicts(same)) == 1
