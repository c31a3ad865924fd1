"""Does each phase fit nodes that somebody has? Each file in values/hardware names its nodes in its first line."""

import json
import re
from pathlib import Path

import pytest
from checkout import VALUES
from pages.sizing import HARDWARE
from trainlab.errors import UserError
from trainlab.plan.job import Node, parse_node
from trainlab.plan.plan_command import command

PHASES = sorted(VALUES.glob("*.yaml"))
AUTHORS = {
    "resnet": "l40s-32gb",
    "lyrics": "l40s-32gb",
    "survival": "l40s-20gb",
    "gemma": "a40-pair",
    **{f"staged-{stage}": "h100x8" for stage in ("pretrain", "sft", "dpo", "lora")},
}
"""Phase -> the nodes that its source document names; of 003, which names one GPU of 80 GB, eight."""


def planned(phase: Path, overlays: list[Path], node: str, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    code = command(phase, overlays, node=node, as_json=True)
    result: dict[str, object] = json.loads(capsys.readouterr().out)
    assert code == (not result["ok"])
    return result


@pytest.mark.parametrize("phase", PHASES, ids=lambda path: path.stem)
def test_each_phase_fits_one_of_the_nodes(phase: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {AUTHORS[phase.stem]} if phase.stem in AUTHORS else {path.stem for path in HARDWARE}
    tried = {path.stem: planned(phase, [path], node, capsys) for path, node in HARDWARE.items() if path.stem in names}
    assert any(plan["ok"] for plan in tried.values()), {name: plan["findings"] for name, plan in tried.items()}


def test_the_pods_of_the_source_documents_fit_their_32_gb() -> None:
    """32Gi, as survival and lyrics asked for before, never could."""
    for name in ("resnet", "lyrics", "survival", "gemma"):
        assert command(VALUES / f"{name}.yaml", node="8cpu,32GB") == 0, name


def test_what_does_not_fit_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    big = tmp_path / "big.yaml"
    big.write_text("phase: {resources: {memory: 32Gi}}\n", encoding="utf-8")
    plan = planned(VALUES / "survival.yaml", [big], "8cpu,32GB", capsys)
    assert (
        not plan["ok"]
        and "a pod of the training asks for 6 cores, 32Gi and 1 GPUs; a node of 8 cores and 29.80 GiB leaves it 7 cores and"
        in str(plan)
    )
    assert "and 8 GPUs" in str(planned(VALUES / "staged-sft.yaml", [], "192cpu,2TB,1xH100", capsys))
    assert "the server's pod asks for 4 cores, 16Gi and 1 GPUs" in str(
        planned(VALUES / "lyrics.yaml", [], "8cpu,16GB", capsys)
    )


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("8cpu,32GB", Node(8, 32e9)),
        ("8vCPU, 32GiB", Node(8, 32 * 2**30)),
        ("192cpu,2TB,8xH100-80GB", Node(192, 2e12, 8, "H100-80GB")),
    ],
)
def test_ways_to_write_a_node(text: str, node: Node) -> None:
    assert parse_node(text) == node


@pytest.mark.parametrize("text", ["32GB", "8cpu", "8cpu,32", "8cpu,32GB,L40S", ""])
def test_what_is_no_node(text: str) -> None:
    with pytest.raises(UserError, match=re.escape("8cpu,32GB")):
        parse_node(text)
