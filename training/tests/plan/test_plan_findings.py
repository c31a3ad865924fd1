"""Each finding of the planner, once fired, names the key of a values file that mends it."""

from dataclasses import replace

import plan_jobs as jobs
import pytest
from trainlab.plan import devices, estimate
from trainlab.plan.checks import KEYS, check
from trainlab.plan.estimate import Plan
from trainlab.plan.job import Node, Volume

TEN_GBIT = 1.25e9
SMALL = (
    Volume("runs", 1e9, "ReadWriteOnce"),
    Volume("models", 1e9, "ReadWriteMany"),
    Volume("data", 1e9, "ReadWriteMany"),
)
FULL = (Volume("models", 6.5e9, "ReadWriteMany"),)
SERVED = {"serve_runtime": "vllm", "serve_gpus": 1, "serve_tokens": 1024}
FIRED: dict[str, Plan] = {
    code: estimate.estimate(replace(job, **changes), devices.DEVICES[device], TEN_GBIT)
    for code, job, changes, device in (
        ("unknown-model", jobs.SURVIVAL, {"arch": None}, "L40S"),
        ("context", jobs.LYRICS, {"max_length": 1 << 20}, "L40S"),
        ("serve-context", jobs.LYRICS, {**SERVED, "serve_tokens": 4352}, "L40S"),
        ("serve-heads", jobs.LYRICS, {**SERVED, "serve_gpus": 3}, "L40S"),
        ("layers", jobs.LYRICS, {"top_layers": 99}, "L40S"),
        ("untied", jobs.SURVIVAL, {"arch": jobs.LYRICS.arch}, "L40S"),
        ("memory", jobs.PRETRAIN, {}, "L40S"),
        ("memory-tight", jobs.LYRICS, {"batch": 13}, "L40S"),
        ("logits", jobs.WIKI, {}, "H100-80GB"),
        ("unknown-data", jobs.SURVIVAL, {"rows": None, "tokens_per_row": None}, "L40S"),
        ("batch", jobs.SURVIVAL, {"rows": 3}, "L40S"),
        ("warmup", jobs.SURVIVAL, {"warmup_fraction": 1.0}, "L40S"),
        ("tied-head", jobs.SURVIVAL, {}, "L40S"),
        ("frozen-recompute", jobs.SURVIVAL, {"tie_word_embeddings": False}, "L40S"),
        ("network", jobs.SURVIVAL, {}, "L40S"),
        ("access-mode", jobs.SURVIVAL, {"volumes": SMALL}, "L40S"),
        ("runs-volume", jobs.SURVIVAL, {"volumes": SMALL}, "L40S"),
        ("models-volume", jobs.SURVIVAL, {"volumes": SMALL}, "L40S"),
        ("data-volume", jobs.SURVIVAL, {"volumes": SMALL, "data_bytes": 2e9}, "L40S"),
        ("volume-tight", jobs.SURVIVAL, {"volumes": FULL}, "L40S"),
        ("engine-memory", jobs.PRETRAIN, SERVED, "T4"),
        ("server-memory", jobs.SURVIVAL, {"serve_runtime": "trainlab", "serve_memory": 8e9}, "L40S"),
        ("bf16", jobs.SURVIVAL, {"precision": "bf16"}, "T4"),
        ("tf32", jobs.SURVIVAL, {"tf32": True, "precision": "fp32"}, "T4"),
        ("shared-memory", jobs.SURVIVAL, {"loaders": 4, "shared_memory": 1000}, "L40S"),
        ("rounding", jobs.SURVIVAL, {"learning_rate": 1e-9}, "L40S"),
        ("lora-rank", jobs.LYRICS, {"lora_rank": 600, "serve_max_lora_rank": 512}, "L40S"),
        ("few-tokens", jobs.PRETRAIN, {"rows": 3200}, "H100-80GB"),
        ("node", jobs.LYRICS, {"node": Node(8, 32e9), "cores_per_pod": 8}, "L40S"),
        ("host-memory", jobs.LYRICS, {"memory_per_pod": 2**32}, "L40S"),
        ("prepare-memory", jobs.PRETRAIN, {"text_bytes": 1e9, "on_gpu": True, "prepare_memory": 2**30}, "H100-80GB"),
        ("deadline", jobs.LYRICS, {"timeout_seconds": 60.0}, "L40S"),
        (
            "server-start",
            jobs.SURVIVAL,
            {"serve_runtime": "trainlab", "serve_memory": 80e9, "serve_start_seconds": 5.0},
            "L40S",
        ),
    )
}
"""A job for each finding that a rule of checks.py can make."""


@pytest.mark.parametrize("code", FIRED)
def test_each_finding_says_which_key_to_change(code: str) -> None:
    assert KEYS[code] in {finding.key for finding in check(FIRED[code]) if finding.code == code}


def test_every_finding_is_among_these() -> None:
    """A rule that is added to checks.py has a key, and one that no job fires is told apart from one that does."""
    assert {finding.code for plan in FIRED.values() for finding in check(plan)} == set(FIRED) == set(KEYS)
