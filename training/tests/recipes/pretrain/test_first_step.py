"""Pre-training that prepares its text first: the folder that data.source names, made once for the same content."""

import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from checkout import SOURCES
from stages import PRETRAIN, phase_of
from tiny import write_text
from trainlab import files, recipes
from trainlab.config import Phase
from trainlab.data.prepare.blocks import is_prepared
from trainlab.errors import UserError
from waiting import until

FETCH = """
import sys
from functools import partial
from trainlab.data.prepare import ingest, pipeline
from trainlab.recipes import pretrain
if __name__ == "__main__":
    pipeline.WORTH, pipeline.cores, ingest.GROUP = 0, lambda: 2, 2000
    pretrain.Options = partial(pretrain.Options, shard_chars=9000)
    from trainlab.cli import main
    main(["fetch", *sys.argv[1:]])
"""
"""What the pod runs, `trainlab fetch phase.json --models DIR`, with processes and shards that small texts have, too."""

LATE = """
import multiprocessing, os, signal, time
from trainlab.data.prepare.workers import begin
def late(parent):
    while os.getppid() == parent:
        time.sleep(0.01)
    print("orphan", flush=True)
    begin()
    print("began", flush=True)
    time.sleep(600)
if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=late, args=(os.getpid(),))
    child.start()
    print(child.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
"""A process that begins only once its parent is dead; stdout is at its end when both are."""


def phase(base: dict[str, Any], **prepare: Any) -> Phase:
    return phase_of(
        base,
        PRETRAIN,
        data={"source": "pvc:blocks"},
        text={"prepare": {"source": "pvc:raw", "min_chars": 1, "near": 0, **prepare}},
        stage={"tokenizer": "pvc:tiny"},
    )


@pytest.fixture
def models(tmp_path: Path, tiny_model: Path) -> Path:
    (tmp_path / "tiny").symlink_to(tiny_model)
    (tmp_path / "raw").mkdir()
    write_text(tmp_path / "raw" / "text.jsonl")
    return tmp_path


def test_the_text_is_prepared_once_into_the_folder_that_the_phase_trains_on(
    phase_dict: dict[str, Any], models: Path
) -> None:
    asked = phase(phase_dict)
    recipe = recipes.get_recipe(asked)
    model_dir = recipe.fetch(asked, models, None)
    blocks = models / "blocks"
    assert is_prepared(blocks) and files.read_json(blocks / "index.json")["block_length"] == 32
    made = {path: path.stat().st_mtime_ns for path in blocks.glob("*.*") if path.suffix in (".bin", ".json")}
    assert recipe.data_dir(asked, models, None) == blocks
    recipe.preflight(asked, model_dir, blocks)
    noted = files.read_json(model_dir / "source.json")["tokenizer"]
    assert noted and noted == files.read_json(blocks / "report.json")["plan"]["tokenizer"]
    assert recipe.fetch(asked, models, None) == model_dir
    assert {path: path.stat().st_mtime_ns for path in made} == made
    with (models / "raw" / "text.jsonl").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps({"id": 99, "body": "one more document"}) + "\n")
    with pytest.raises(
        UserError, match=r"phase.text.prepare \(its --out is phase.data.source pvc:blocks\): .*made with a"
    ):
        recipe.fetch(asked, models, None)


def test_text_of_a_hub_is_streamed_and_then_prepared(
    phase_dict: dict[str, Any], models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text(models / "own" / "set" / "train.jsonl")
    monkeypatch.chdir(models)
    asked = phase(phase_dict, source="hf:own/set@" + "0" * 40)
    recipes.get_recipe(asked).fetch(asked, models, None)
    assert (
        is_prepared(models / "blocks") and files.read_json(models / "blocks" / "report.json")["documents"]["kept"] == 60
    )


def test_what_is_missing_or_contradicts_itself_is_named(phase_dict: dict[str, Any], models: Path) -> None:
    asked = phase(phase_dict, source="pvc:elsewhere")
    with pytest.raises(
        UserError, match=r"phase.text.prepare.source is pvc:elsewhere: nothing at .*; put it there first"
    ):
        recipes.get_recipe(asked).fetch(asked, models, None)
    bare = models / "bare"
    bare.mkdir()
    asked = phase_of({**phase(phase_dict).model_dump(), "recipe": "pretrain"}, {}, stage={"tokenizer": "pvc:bare"})
    with pytest.raises(
        UserError, match=r"^phase.stage.tokenizer is pvc:bare: .* has none of tokenizer.json, .*trainlab put"
    ):
        recipes.get_recipe(asked).fetch(asked, models, None)
    for path in (models / "tiny").glob("tokenizer*"):
        shutil.copy(path, bare)
    recipes.get_recipe(asked).fetch(asked, models, None)  # no weights are needed
    assert is_prepared(models / "blocks")


@pytest.mark.rest
def test_the_pod_s_command_killed_by_9_goes_on_where_it_was_and_leaves_no_process(
    phase_dict: dict[str, Any], models: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As the Job of site.step prepare does, whose pod is made again: the same bytes as without a kill."""
    write_text(models / "raw" / "text.jsonl", 3000)
    folder = tmp_path_factory.mktemp("program")
    (folder / "fetch.py").write_text(FETCH, encoding="utf-8")
    (folder / "phase.json").write_text(
        json.dumps({"phase": phase(phase_dict).model_dump(mode="json")}), encoding="utf-8"
    )
    call = [sys.executable, str(folder / "fetch.py"), str(folder / "phase.json"), "--models"]
    start = partial(subprocess.Popen, env=os.environ | {"PYTHONPATH": str(SOURCES)})
    blocks, second = models / "blocks", models / "blocks" / "work" / "text-00001.json"
    with start([*call, str(models)]) as killed:
        until(lambda: second.exists() or killed.poll() is not None, seconds=600)
        children = [
            pid
            for task in Path(f"/proc/{killed.pid}/task").iterdir()
            for pid in (task / "children").read_text().split()
        ]
        killed.send_signal(signal.SIGKILL)
    assert killed.returncode == -signal.SIGKILL and not is_prepared(blocks) and children
    until(lambda: not any(running(pid) for pid in children))
    with start([*call, str(models)]) as again:
        assert again.wait() == 0 and is_prepared(blocks)
    unkilled = tmp_path_factory.mktemp("unkilled")
    for name in ("raw", "tiny"):
        (unkilled / name).symlink_to(models / name)
    with start([*call, str(unkilled)]) as once:
        assert once.wait() == 0
    contents = [
        {path.name: path.read_bytes() for path in folder.glob("*.*")} for folder in (blocks, unkilled / "blocks")
    ]
    assert contents[0] == contents[1] and len(contents[0]) > 4


def test_a_process_whose_parent_was_killed_before_it_began_ends(tmp_path: Path) -> None:
    """As one that still imports: the signal for a parent's death is asked for too late."""
    program = tmp_path / "program.py"
    program.write_text(LATE, encoding="utf-8")
    started = subprocess.run(
        [sys.executable, str(program)],
        env=os.environ | {"PYTHONPATH": str(SOURCES)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert started.returncode == -signal.SIGKILL and "began" not in started.stdout
    pid, _, ended = started.stdout.partition("\n")
    assert ended == "orphan\n"
    until(lambda: not running(pid))


def running(pid: str) -> bool:
    """True for a process that has not ended."""
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
