"""What a run leaves, read by transformers 4.57 as by vLLM before 0.19.1 (RHOAI up to 3.4): settings, ids, prompt, tokens.

Source of the versions: vllm-project/vllm #30566 and #40146.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import bases_of
import overlays
import pytest
from checkout import DATA
from results import TRAIN, make_result
from tiny import make_phase, write_data
from trainlab import files

LOCK = Path(__file__).with_name("transformers_4.lock")
READ = """
import json, sys
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, __version__

folders, asked, texts = map(json.loads, sys.stdin.read().splitlines())
everything = {"version": __version__[0]}
for name, folder in folders.items():
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompt = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
    found = {"ids": tokenizer(texts).input_ids, "prompt": prompt, "special": tokenizer.special_tokens_map}
    if "adapter" not in folder:
        config = AutoConfig.from_pretrained(folder)
        if __version__ < "5":
            bases = [config.rope_theta, getattr(config, "rope_local_base_freq", None)]
        else:
            rope = config.rope_parameters
            bases = [rope.get("full_attention", rope)["rope_theta"], rope.get("sliding_attention", {}).get("rope_theta")]
        model = AutoModelForCausalLM.from_pretrained(folder)
        given = tokenizer(prompt, return_tensors="pt", add_special_tokens=False).input_ids
        found |= {"rope": bases, "answer": model.generate(given)[0].tolist()}  # generation_config.json says how
    everything[name] = found
print(json.dumps(everything))
"""
ASKED = [{"role": "user", "content": "is it safe?"}]


@pytest.fixture(scope="session")
def transformers_4() -> Path:
    """A folder with transformers 4.57 and what it needs in other versions than the environment has; 90 MB, kept."""
    return overlays.folder(LOCK)


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """Every text of the project's data sets."""
    rows = [json.loads(line) for path in sorted(DATA.rglob("*.jsonl")) for line in path.open()]
    result = [value for row in rows for value in row.values() if isinstance(value, str)]
    assert len(result) > 1000
    return result


def read(folders: dict[str, Path], texts: list[str], packages: Path | None = None) -> dict[str, Any]:
    """Read results with the transformers of `packages`, or the environment's: ids of texts, prompt, answer, rope bases."""
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    given = [{name: str(folder) for name, folder in folders.items()}, ASKED, texts]
    done = subprocess.run(
        [sys.executable, "-c", READ],
        input="\n".join(map(json.dumps, given)),
        env={**env, "PYTHONPATH": str(packages or "")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture
def results(tmp_path: Path, base: Path, phase_dict: dict[str, Any]) -> dict[str, Path]:
    """What runs leave by the kind of their base: transformers 5's (also as an adapter), 4's, a GGUF file's, a run's, Gemma's."""
    data = write_data(tmp_path / "data")
    bases = {
        "weights": base,
        "adapter": base,
        "written by 4": bases_of.transformers_4(base, tmp_path / "old"),
        "gguf": bases_of.gguf(base, tmp_path / "gguf"),
        "gemma": bases_of.gemma(base, tmp_path / "gemma"),
    }
    result: dict[str, Path] = {}
    for name in [*bases, "staged"]:
        blocks: dict[str, Any] = {"lora": {"rank": 4, "alpha": 8}} if name == "adapter" else {}
        phase = make_phase(phase_dict, train=TRAIN, data={"system_prompt": "Answer briefly."}, **blocks)
        result[name] = make_result(phase, bases.get(name) or result["weights"], data, tmp_path / "runs" / name)
    return result


@pytest.mark.rest
def test_both_read_the_same(results: dict[str, Path], texts: list[str], transformers_4: Path) -> None:
    old, new = read(results, texts, transformers_4), read(results, texts)
    assert (old.pop("version"), new.pop("version")) == ("4", "5")
    for name in results:
        assert old[name] == new[name], name
        assert "Answer briefly." in old[name]["prompt"]
    ropes = {name: found["rope"] for name, found in old.items() if name != "adapter"}
    assert ropes.pop("gemma") == [500000.0, 20000.0]
    assert set(map(tuple, ropes.values())) == {(100000.0, None)}


@pytest.mark.rest
def test_a_result_as_transformers_5_leaves_it_is_refused_or_misread(
    base: Path, texts: list[str], transformers_4: Path
) -> None:
    """The two faults that the spelling for both prevents; when this fails, it is no longer needed."""
    with pytest.raises(AssertionError, match="TokenizersBackend does not exist"):
        read({"base": base}, texts, transformers_4)
    config = files.read_json(base / "tokenizer_config.json")
    files.write_json(base / "tokenizer_config.json", {**config, "tokenizer_class": "PreTrainedTokenizerFast"})
    assert read({"base": base}, texts, transformers_4)["base"]["rope"] != [100000.0, None]
