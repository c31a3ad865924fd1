"""The planner flags contradictions in what is often told, each given with the numbers told with it."""

from dataclasses import replace

import plan_jobs as jobs
import pytest
from trainlab.errors import UserError
from trainlab.models import architectures
from trainlab.plan.advertised_numbers import AdvertisedNumbers, from_mapping, judge
from trainlab.plan.checks import check
from trainlab.plan.devices import DEVICES
from trainlab.plan.estimate import estimate
from trainlab.plan.findings import Finding
from trainlab.plan.job import Job

TEN_GBIT = 1.25e9
NARROW_7B = replace(architectures.TABLE["llama-7.39B"], intermediate=11008)


def found(job: Job, advertised: AdvertisedNumbers, device: str) -> list[Finding]:
    """Return the findings about the job and the advertised."""
    plan = estimate(job, DEVICES[device], TEN_GBIT)
    return check(plan) + judge(plan, advertised)


TEN = [
    pytest.param(jobs.LYRICS, "L40S", AdvertisedNumbers(samples_per_second=1000), "throughput-over-peak", "9.0 times",
                 id="1-thousand-samples-a-second-on-one-L40S"),
    pytest.param(jobs.LYRICS, "L40S",
                 AdvertisedNumbers(samples_per_second=1000, samples=90_000, epochs=2, seconds_low=45, seconds_high=90),
                 "time-against-throughput", "3.0 min, not 45-90 s", id="2-180-s-are-not-45-to-90-s"),
    pytest.param(jobs.LYRICS, "L40S", AdvertisedNumbers(base_weights_gb=6), "base-weights", "7.6 GB", id="3-base-model-of-6-GB"),
    pytest.param(jobs.SURVIVAL, "L40S", AdvertisedNumbers(effective_batch=32), "effective-batch", "is 64",
                 id="4-effective-batch-32-or-64"),
    pytest.param(jobs.SURVIVAL, "L40S", AdvertisedNumbers(learning_rate_factor=4, reference_batch=60), "learning-rate", "x 1.07",
                 id="5-learning-rate-times-world-size"),
    pytest.param(jobs.SURVIVAL, "L40S", AdvertisedNumbers(memory_factor=8), "replicated-memory", "4 times the memory of one",
                 id="6-eight-times-the-memory"),
    pytest.param(jobs.SURVIVAL, "L40S", AdvertisedNumbers(speed_up=4), "speed-up", "1.68 before overlap",
                 id="7-four-times-faster-over-10-Gbit"),
    pytest.param(jobs.WIKI, "A40", AdvertisedNumbers(), "warmup", "warm-up is 500 steps", id="8-warm-up-eval-save-after-the-end"),
    pytest.param(jobs.PRETRAIN, "H100-80GB",
                 AdvertisedNumbers(hours_by_gpu={"A100-80GB": (45, 50), "H100-80GB": (35, 40)}), "hours-over-peak", "imply",
                 id="9-hours-of-the-7B-pretraining"),
    pytest.param(jobs.PRETRAIN, "H100-80GB", AdvertisedNumbers(devices=1), "optimizer-states", "118.27 GB",
                 id="10-7B-with-AdamW-on-one-80-GB-GPU"),
]  # fmt: skip

MORE = [
    (jobs.LYRICS, "L40S", AdvertisedNumbers(memory_used_gb=45), "memory-used"),
    (replace(jobs.LYRICS, serve_max_lora_rank=16), "L40S", AdvertisedNumbers(), "lora-rank"),
    (jobs.SURVIVAL, "L40S", AdvertisedNumbers(), "tied-head"),
    (jobs.SURVIVAL, "L40S", AdvertisedNumbers(), "network"),
    (jobs.SURVIVAL, "L40S", AdvertisedNumbers(survives_lost_worker=True), "lost-worker"),
    (jobs.WIKI, "A40", AdvertisedNumbers(), "eval"),
    (jobs.WIKI, "A40", AdvertisedNumbers(), "save"),
    (jobs.WIKI, "A40", AdvertisedNumbers(), "logits"),
    (jobs.WIKI, "A40", AdvertisedNumbers(model="google/gemma-270m"), "model-id"),
    (replace(jobs.WIKI, precision="fp16"), "A40", AdvertisedNumbers(), "fp16"),
    (replace(jobs.WIKI, precision="fp8"), "A40", AdvertisedNumbers(), "fp8"),
    (jobs.PRETRAIN, "H100-80GB", AdvertisedNumbers(), "memory"),
    (jobs.PRETRAIN, "H100-80GB", AdvertisedNumbers(), "few-tokens"),
    (replace(jobs.PRETRAIN, arch=NARROW_7B), "H100-80GB", AdvertisedNumbers(parameters=7e9), "parameter-name"),
    (jobs.AT_512, "H100-80GB", AdvertisedNumbers(hours_by_gpu={"A100-80GB": (45, 50)}), "hours-over-peak"),
    (jobs.AT_512, "H100-80GB", AdvertisedNumbers(hours_by_gpu_fp8={"H100-80GB": (25, 30)}), "hours-unproven"),
    (jobs.PRETRAIN, "H100-80GB", AdvertisedNumbers(hours_by_gpu_fp8={"A100-80GB": (25, 30)}), "hours-fp8"),
    (
        jobs.AT_512,
        "H100-80GB",
        AdvertisedNumbers(hours_by_gpu={"A100-80GB": (45, 50), "H100-80GB": (35, 40)}),
        "gpu-ratio",
    ),
    (jobs.PRETRAIN, "H100-80GB", AdvertisedNumbers(fp8_gain=1.4), "fp8-gain"),
    (jobs.PRETRAIN, "H100-80GB", AdvertisedNumbers(compile_gain=2), "compile-gain"),
    (jobs.PRETRAIN, "H100-80GB", AdvertisedNumbers(packing_gain=6), "packing-gain"),
    (jobs.PRETRAIN, "H100-80GB", AdvertisedNumbers(utilization_percent=95), "utilization"),
]


@pytest.mark.parametrize(("job", "device", "advertised", "code", "words"), TEN)
def test_the_ten_contradictions_are_refused(
    job: Job, device: str, advertised: AdvertisedNumbers, code: str, words: str
) -> None:
    """Each is refused, and the sentence has the right number in it."""
    hits = [finding for finding in found(job, advertised, device) if finding.code == code]
    assert hits and all(finding.level == "refuse" for finding in hits)
    assert any(words in finding.text for finding in hits), [finding.text for finding in hits]


@pytest.mark.parametrize(
    ("job", "device", "advertised", "code"), MORE, ids=[row[3] + f"-{n}" for n, row in enumerate(MORE)]
)
def test_further_statements_are_flagged(job: Job, device: str, advertised: AdvertisedNumbers, code: str) -> None:
    """Each is at least a warning."""
    assert code in [finding.code for finding in found(job, advertised, device)]


def test_right_numbers_pass() -> None:
    """The corrected statements raise nothing: the judge can also say yes."""
    plan = estimate(jobs.SURVIVAL, DEVICES["L40S"], TEN_GBIT)
    right = AdvertisedNumbers(
        effective_batch=64, learning_rate_factor=1, reference_batch=60, speed_up=1.6, parameters=3.075e9,
        base_weights_gb=6.15, memory_used_gb=40, samples_per_second=50, samples=2845, epochs=4, seconds_low=200,
        seconds_high=250, fp8_gain=1.2, compile_gain=1.2, packing_gain=1.5, model="google/gemma-3-270m",
    )  # fmt: skip
    assert judge(plan, right) == []


def test_possible_hours_pass() -> None:
    """The FLOP of the curriculum at 45 % MFU need about 106 hours on an H100: saying so is fine."""
    plan = estimate(jobs.PRETRAIN, DEVICES["H100-80GB"], TEN_GBIT)
    assert judge(plan, AdvertisedNumbers(hours_by_gpu={"H100-80GB": (100, 110)})) == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"speedup": 4}, "speedup: unknown key"),
        ({"speed_up": "4x"}, "must be a number"),
        ({"hours_by_gpu": {"H100": 40}}, "[low, high]"),
    ],
)
def test_wrong_numbers_are_errors(given: dict[str, object], words: str) -> None:
    """A advertised file with a mistake names key and remedy."""
    with pytest.raises(UserError, match=words.replace("[", r"\[")):
        from_mapping(given, "advertised.yaml")
