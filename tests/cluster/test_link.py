"""The network between the nodes is as slow as asked, and as before without: two nodes and a switch, in namespaces of this test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest
from embedded_cluster.base import programs, say
from embedded_cluster.nodes import link

SIZE, RATE = 640 * 1024, 2_000_000  # bytes, bits per second
SWITCH = """
set -e
ip link set lo up
ip link add br0 type bridge
ip link set br0 up
for number in 1 2; do
  unshare --net sleep 600 &
  until [ "$(readlink /proc/$!/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.02; done
  ip link add vn$number type veth peer name eth0 netns $!
  ip link set vn$number master br0 up
  nsenter --target $! --net sh -c "ip addr add 10.9.0.$number/24 dev eth0 && ip link set eth0 up"
  echo $!
done
echo ready
exec sleep 600
"""
SEND = f"""
import socket
with socket.create_connection(("10.9.0.2", 9000), timeout=60) as to:
    to.sendall(bytes({SIZE}))
"""
RECEIVE = """
import socket, time
with socket.create_server(("10.9.0.2", 9000)) as server:
    print("listening", flush=True)
    by, _ = server.accept()
    began, size = time.monotonic(), 0
    while part := by.recv(65536):
        size += len(part)
    print(size, time.monotonic() - began, flush=True)
"""
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("tc"), reason="network namespaces need root, and shaping needs tc"
)


@pytest.fixture
def network() -> Iterator[tuple[int, int, int]]:
    """Processes in the namespaces of the switch and of two nodes."""
    with subprocess.Popen(
        ["unshare", "--net", "bash", "-c", SWITCH], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as switch:
        assert switch.stdout and switch.stderr
        lines = [switch.stdout.readline().strip() for _ in range(3)]
        if lines[2] != "ready":
            switch.kill()
            pytest.skip(f"network namespaces cannot be made here: {switch.stderr.read()}")
        nodes = [int(line) for line in lines[:2]]
        try:
            yield switch.pid, nodes[0], nodes[1]
        finally:
            for pid in (*nodes, switch.pid):
                os.kill(pid, 9)


def seconds(sender: int, receiver: int) -> float:
    """Send SIZE bytes from one node to the other; return the seconds from the first to the last of them."""
    inside = [["nsenter", "--target", str(pid), "--net", sys.executable, "-c"] for pid in (receiver, sender)]
    with subprocess.Popen([*inside[0], RECEIVE], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout and server.stdout.readline() == "listening\n"
        subprocess.run([*inside[1], SEND], check=True)
        size, took = server.stdout.readline().split()
    assert int(size) == SIZE
    return float(took)


def test_a_slow_link_is_slow_and_ends_by_the_same_command(network: tuple[int, int, int]) -> None:
    switch, first, second = network
    links = ["vn1", "vn2"]
    assert not link.shape_links(switch, links, None)
    assert link.shape_links(switch, links, RATE) and not link.shape_links(switch, links, RATE)
    # no machine is too busy for this: what the bucket holds at first passes at once, the rest not before its time
    assert seconds(first, second) > 0.9 * (SIZE - link.LEAST_BURST) * 8 / RATE
    assert link.shape_links(switch, links, 10 * RATE)
    assert link.shape_links(switch, links, None) and not link.shape_links(switch, links, None)
    shown = programs.run("nsenter", "--target", str(switch), "--net", "tc", "qdisc", "show")
    assert "tbf" not in shown
    seconds(first, second)


def test_what_is_no_rate_and_no_cluster_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert link.bits_per_second("100mbit") == link.bits_per_second("100Mbit") == 10**8
    assert link.bits_per_second("1.5gbit") == 1_500_000_000 and link.bits_per_second("full") is None
    for rate in ("100", "0mbit", "fast", "-1mbit", "100mbit; true"):
        with pytest.raises(say.UserError, match=r"^--rate .*: give a number with kbit, mbit or gbit"):
            link.shape(rate)
    monkeypatch.setattr(link.cgroups, "init_of", lambda *_: None)
    with pytest.raises(say.UserError, match="no cluster runs here"):
        link.shape("100mbit")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(say.UserError, match="tc is missing: install iproute2"):
        link.shape("100mbit")
