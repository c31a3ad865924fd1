"""Each volume is counted by itself, at its fullest, and refused by itself with key, value and remedy."""

from dataclasses import replace
from pathlib import Path

import plan_jobs as jobs
import pytest
from checkout import VALUES
from trainlab.plan import devices, estimate, volumes
from trainlab.plan.checks import check
from trainlab.plan.job import Job, Volume
from trainlab.plan.plan_command import command

L40S = devices.DEVICES["L40S"]
TEN_GBIT = 1.25e9
# Two layers and a head with its own weights; four checkpoints, two and the best one kept.
SURVIVAL = replace(
    jobs.SURVIVAL, tie_word_embeddings=False, checkpoints=4, keep_checkpoints=2, keeps_best=True, serve_runtime="vllm"
)
SEVEN = replace(jobs.PRETRAIN, sharded=True, devices_per_node=8, checkpoints=30, keep_checkpoints=2)


def needed(job: Job) -> dict[str, float]:
    """Return the bytes of each volume."""
    return {need.name: need.bytes for need in estimate.estimate(job, L40S, TEN_GBIT).volumes}


def refused(job: Job, **sizes: float | None) -> dict[str, str]:
    """Return code and text of each refusal of a job with volumes of these sizes."""
    given = tuple(Volume(name, value, "ReadWriteMany") for name, value in sizes.items())
    found = check(estimate.estimate(replace(job, volumes=given), L40S, TEN_GBIT))
    return {one.code: one.line for one in found if one.level == "refuse" and one.code.endswith("-volume")}


def test_checkpoints_by_hand() -> None:
    """Survival: 418.9 M weights in float32, two moments and the best step's, 2,918.9 M frozen in bfloat16; 7.39 B: 12 bytes each."""
    assert volumes.checkpoint(SURVIVAL, jobs.SMOL3) == pytest.approx(418.9e6 * 16 + 2918.9e6 * 2, rel=0.003)
    assert volumes.checkpoint(SEVEN, jobs.SEVEN) == pytest.approx(88.7e9, rel=0.001)
    adapters = jobs.PHI.lora(128, 32)
    assert volumes.checkpoint(jobs.LYRICS, jobs.PHI) == pytest.approx(adapters * 12, rel=0.003)


@pytest.mark.parametrize(
    ("changes", "most", "tuned"),
    [
        ({"checkpoints": 4, "keep_checkpoints": 2, "keeps_best": True}, 3, 0),  # two and one being written
        ({"checkpoints": 10, "keep_checkpoints": 2, "keeps_best": False}, 3, 0),
        ({"checkpoints": 10, "keep_checkpoints": 1, "keeps_best": False}, 2, 0),  # it goes when the new one is complete
        (
            {"checkpoints": 2, "keep_checkpoints": 5, "keeps_best": True},
            2,
            1,
        ),  # none goes, and the tuned model is added
    ],
)
def test_the_checkpoint_that_is_written_counts_before_the_old_one_goes(
    changes: dict[str, int], most: int, tuned: int
) -> None:
    job = replace(SEVEN, sharded=False, **changes)  # float32 everywhere: the tuned model is less than a checkpoint
    expected = most * volumes.checkpoint(job, jobs.SEVEN) + tuned * 2 * jobs.SEVEN.parameters
    assert needed(job)["runs"] == pytest.approx(expected, rel=0.001)


def test_earlier_stages_lie_in_the_same_volumes() -> None:
    """Their models in the runs, the weights that the first one was drawn with in the models."""
    later = replace(SEVEN, from_scratch=False, stages_before=2)
    weights = jobs.SEVEN.parameters * 2
    assert needed(later)["runs"] - needed(SEVEN)["runs"] == pytest.approx(2 * weights, rel=0.001)
    assert needed(later)["models"] == pytest.approx(weights, rel=0.001)


def test_each_volume_is_refused_by_itself() -> None:
    """20Gi hold three checkpoints of 12.56 GB no better when another volume has room to spare."""
    lines = refused(SURVIVAL, models=100e9, runs=20 * 2**30)
    assert set(lines) == {"runs-volume"}
    for part in ("volume runs is 20Gi (21.47 GB)", "37.70", "3 checkpoints of 12.56 GB", "set 40Gi or more"):
        assert part in lines["runs-volume"], lines
    assert ", or lower phase.train.keep_checkpoints (2)" in lines["runs-volume"]
    assert set(refused(SURVIVAL, models=5e9, runs=100e9)) == {"models-volume"}
    assert refused(SURVIVAL, models=10e9, runs=50 * 2**30) == {}


def test_a_data_set_counts_where_it_lies() -> None:
    job = replace(SURVIVAL, data_bytes=30e9)
    assert needed(job)["models"] == pytest.approx(needed(SURVIVAL)["models"] + 30e9)
    assert (
        "or give the data set a volume of its own (site.storage.data.size)"
        in refused(job, models=2e10)["models-volume"]
    )
    assert set(refused(job, models=2e10, data=2e10, runs=1e11)) == {"data-volume"}
    assert refused(job, models=2e10, data=4e10, runs=1e11) == {}


def test_the_text_that_blocks_are_made_of_stays_and_its_working_files_go() -> None:
    job = replace(SEVEN, data_bytes=8e9, text_bytes=10e9)
    before = needed(replace(SEVEN, data_bytes=8e9))["models"]
    assert needed(job)["models"] == pytest.approx(
        before + 10e9
    )  # the weights are drawn when the working files are gone
    assert needed(replace(job, text_bytes=100e9))["models"] == pytest.approx(8e9 + 160e9)
    own = refused(job, models=2e10, data=2e10, runs=1e12)
    assert (
        set(own) == {"data-volume"} and "its text 10.00 GB, working files of text.prepare 6.00 GB" in own["data-volume"]
    )


def test_access_modes() -> None:
    """ReadWriteOnce with several nodes is refused."""
    once = (Volume("runs", 1e12, "ReadWriteOnce"),)
    for nodes, codes in ((1, set()), (4, {"access-mode"})):
        plan = estimate.estimate(replace(jobs.SURVIVAL, nodes=nodes, volumes=once), L40S, TEN_GBIT)
        assert {finding.code for finding in check(plan) if finding.level == "refuse"} == codes


def test_the_size_of_a_claim_that_was_there_before_is_not_known() -> None:
    assert set(refused(SURVIVAL, models=None, runs=1e9)) == {"runs-volume"}
    assert refused(SURVIVAL, models=None, runs=None) == {}


def test_volumes_of_a_site(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The third volume is told; a claim that was there before has no size here, whatever the file says."""
    site = tmp_path / "site.yaml"
    for text, told in (
        ("data: {size: 10Gi}", "data volume           0 B of 10Gi (10.74 GB): nothing"),
        ("runs: {existing: c, size: 1Mi}", "981.98 MB of an existing claim"),
    ):
        site.write_text(f"site: {{storage: {{{text}}}}}", encoding="utf-8")
        assert command(VALUES / "survival.yaml", [site]) == 0
        assert told in capsys.readouterr().out
    site.write_text("site: {storage: {runs: {size: 900Mi}}}", encoding="utf-8")
    assert command(VALUES / "survival.yaml", [site]) == 1
    assert "REFUSED [runs-volume] volume runs is 900Mi" in capsys.readouterr().out


def test_volumes_are_refused_whatever_the_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A GPU that is missing from the table hides no volume that is too small."""
    site = tmp_path / "site.yaml"
    label = "nodeSelector: {nvidia.com/gpu.product: NVIDIA-Z1}"
    for size, code in (("900Mi", 1), ("20Gi", 0)):
        site.write_text(f"site: {{{label}, storage: {{runs: {{size: {size}}}}}}}", encoding="utf-8")
        assert command(VALUES / "survival.yaml", [site]) == code
        said = capsys.readouterr().out
        assert ("REFUSED [runs-volume]" in said) == bool(code) and "warning [not-planned]" in said
