"""A slower network between the nodes: a token bucket (tc-tbf) on the switch's end of each node's link.

Called by commands.py. The buckets are in the cluster's own network namespace, so whatever ends the cluster ends them.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence

from embedded_cluster.base import cgroups, programs, running, say

FULL = "full"
UNITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
BURST_SECONDS, LEAST_BURST = 0.01, 128 * 1024
"""What may pass at once: tbf needs a timer tick of the rate, and whole packets of 64 KiB."""
LATENCY = "100ms"


def shape(rate: str) -> bool:
    """Let each node receive at most `rate`, such as 100mbit, or with `full` what the machine can; returns whether that changed."""
    bits = bits_per_second(rate)
    if shutil.which("tc") is None:
        raise say.UserError("tc is missing: install iproute2 (Fedora: iproute-tc), and run the command again")
    switch = cgroups.init_of("outer", running.OUTER_DEPTH)
    if switch is None:
        raise say.UserError("no cluster runs here: start one with `cluster/python cluster up`")
    return shape_links(switch, [f"v{name}" for name in running.state().get("nodes", [])], bits)


def bits_per_second(rate: str) -> int | None:
    """Return what a rate says, None for `full`; raises say.UserError for one that cannot be set."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(kbit|mbit|gbit)", rate.lower())
    if rate == FULL:
        return None
    if match is None or float(match[1]) <= 0:
        raise say.UserError(f"--rate {rate}: give a number with kbit, mbit or gbit, such as 100mbit, or {FULL}")
    return int(float(match[1]) * UNITS[match[2]])


def shape_links(switch: int, links: Sequence[str], bits: int | None) -> bool:
    """Set the rate of what the switch, in the network namespace of process `switch`, sends on each link; returns whether any changed."""
    inside = ("nsenter", "--target", str(switch), "--net", "tc")
    changed = False
    for link in links:
        (now,) = json.loads(programs.run(*inside, "-json", "qdisc", "show", "dev", link, "root")) or [{}]
        shaped = now.get("options", {}).get("rate") if now.get("kind") == "tbf" else None
        wanted = None if bits is None else bits // 8
        if shaped == wanted:
            continue
        changed = True
        if bits is None:
            programs.run(*inside, "qdisc", "del", "dev", link, "root")
            continue
        burst = max(LEAST_BURST, int(bits / 8 * BURST_SECONDS))
        bucket = ("rate", f"{bits}bit", "burst", str(burst), "latency", LATENCY)
        try:
            programs.run(*inside, "qdisc", "replace", "dev", link, "root", "tbf", *bucket)
        except say.UserError as error:
            if "kind is unknown" in str(error):
                raise say.UserError(
                    "this kernel has no token bucket: load its module sch_tbf (`modprobe sch_tbf`)"
                ) from None
            raise
    return changed
