"""An attendee with a kubeconfig, Helm and the room's printed sheet: its two lines, word for word, in a namespace of attendees.yml."""

from __future__ import annotations

import argparse
import html
import os
import re
import subprocess
from pathlib import Path

import httpx
import pytest
from api_server.harness import Cluster
from api_server.training_api import trainer
from charts.rendering import CHART, HELMS, ROOT, SITE, binary, helm
from fastapi import FastAPI
from room_parts import Engine, listening
from trainlab.room import command
from trainlab.room.app import create_app

pytestmark = pytest.mark.usefixtures("training")
QUICK = ROOT / "values" / "quick.yaml"


def room(url: str, state: Path) -> FastAPI:
    """Return the application of a room as the chart starts it, of phase quick and without rounds."""
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    options = ("--engine", url, "--state", str(state), "--values", str(QUICK), "--charts", str(ROOT / "charts"))
    return create_app(command.room_of(parser.parse_args(options)))


def test_the_two_lines_of_the_sheet_train(cluster: Cluster, tmp_path: Path) -> None:
    """By Helm 3 and by Helm 4, with nothing else in the folder; the run is the one that a checkout gives."""
    dest = tmp_path / "handed"
    wanted = {"attendees_names": list(HELMS), "attendees_dest": str(dest), "attendees_preflight": False}
    made = cluster.playbook("attendees", **wanted)
    assert made.code == 0, made.text
    runs = []
    with listening(Engine().app) as url, listening(room(url, tmp_path / "state")) as address:
        for name in HELMS:
            page = httpx.get(f"{address}/sheet", params={"names": name}).text
            (lines,) = (html.unescape(each) for each in re.findall(r"<pre[^>]*>(.*?)</pre>", page, re.S))
            folder = tmp_path / f"laptop-{name}"
            (folder / "bin").mkdir(parents=True)
            (folder / "bin" / "helm").symlink_to(binary(name))
            (folder / f"{name}.kubeconfig").write_bytes((dest / f"{name}.kubeconfig").read_bytes())
            env = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "HOME": str(folder / "home")}
            done = subprocess.run(
                ["sh", "-ec", lines], cwd=folder, env=env, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            (job,) = cluster.client.items("kubeflow.org/v1", "PyTorchJob", f"trainlab-{name}")
            runs.append(job["metadata"]["labels"]["trainlab.dev/run"])
    checkout = helm("template", "quick", str(CHART), "-f", str(QUICK), "-f", str(SITE))
    assert len(set(runs)) == 1 and runs[0] in checkout.stdout
    with trainer(cluster.server.kubeconfig):  # claims go
        gone = cluster.playbook("attendees", **wanted, attendees_state="absent")
    assert gone.code == 0, gone.text
