"""playbooks/data.yml; what it copies with is tested in training/tests/run/test_transfer.py."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "given", [{}, {"data_put": "rows.csv"}, {"data_put": "rows.csv", "data_get": "runs/x", "data_to": "datasets/mine/"}]
)
def test_it_is_said_what_to_copy(given: dict[str, str]) -> None:
    env = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    program = str(Path(sys.executable).parent / "ansible-playbook")
    words = [program, "-i", "localhost,", "-c", "local", "playbooks/data.yml", "-e", json.dumps(given)]
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "set data_put to a file or folder of this machine and data_to to" in done.stdout
