"""What a run leaves, read by transformers 4.57 as by vLLM before 0.19.1 (RHOAI up to 3.4): settings, ids, prompt, tokens.

Source of the versions: vllm-project/vllm #30566 and #40146.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkout import DATA
from embedded_cluster import locks, paths, pyenv
from trainlab import files

LOCK = Path(__file__).with_name("transformers_4.lock")
READ = """
import json, sys
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, __version__

folder, asked, texts = sys.argv[1], *map(json.loads, sys.stdin.read().splitlines())
tokenizer = AutoTokenizer.from_pretrained(folder)
prompt = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
found = {"ids": tokenizer(texts).input_ids, "prompt": prompt, "special": tokenizer.special_tokens_map}
if "adapter" not in folder:
    config = AutoConfig.from_pretrained(folder)
    found["rope"] = config.rope_theta if __version__ < "5" else config.rope_parameters["rope_theta"]
    model = AutoModelForCausalLM.from_pretrained(folder)
    given = tokenizer(prompt, return_tensors="pt", add_special_tokens=False).input_ids
    found["answer"] = model.generate(given)[0].tolist()  # generation_config.json says how
print(json.dumps({"version": __version__[0], **found}))
"""
ASKED = [{"role": "user", "content": "is it safe?"}]


@pytest.fixture(scope="session")
def transformers_4() -> Path:
    """A folder with transformers 4.57 and what it needs in other versions than the environment has; 90 MB, kept."""
    folder = paths.CACHE / f"transformers-{files.sha256(LOCK)[:12]}"
    with locks.waiting(paths.CACHE / "transformers.lock", "another command downloads transformers 4.57"):
        if not folder.exists():
            pip = [
                pyenv.installer() / "bin" / "pip",
                "--quiet",
                "--no-cache-dir",
                "install",
                "--no-deps",
                "--no-compile",
            ]
            with files.whole_folder(folder) as made:
                subprocess.run([*pip, "--require-hashes", "--target", made, "-r", LOCK], check=True)
    return folder


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """Every text of the project's data sets."""
    rows = [json.loads(line) for path in sorted(DATA.rglob("*.jsonl")) for line in path.open()]
    found = [value for row in rows for value in row.values() if isinstance(value, str)]
    assert len(found) > 1000
    return found


def read(folder: Path, texts: list[str], packages: Path | None = None) -> dict[str, Any]:
    """Read a result with the transformers of `packages`, or the environment's: ids of texts, prompt, answer, rope base."""
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", READ, str(folder)],
        input=f"{json.dumps(ASKED)}\n{json.dumps(texts)}",
        env={**env, "PYTHONPATH": str(packages or "")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.whole
@pytest.mark.parametrize("blocks", [{}, {"lora": {"rank": 4, "alpha": 8}}], ids=["weights", "adapter"])
def test_both_read_the_same(
    result: Callable[..., Path], texts: list[str], transformers_4: Path, blocks: dict[str, Any]
) -> None:
    folder = result(data={"system_prompt": "Answer briefly."}, **blocks)
    old, new = read(folder, texts, transformers_4), read(folder, texts)
    assert (old.pop("version"), new.pop("version")) == ("4", "5")
    assert old == new
    assert "Answer briefly." in old["prompt"]
    assert blocks or old["rope"] == 100000.0


@pytest.mark.whole
def test_a_result_as_transformers_5_leaves_it_is_refused_or_misread(
    base: Path, texts: list[str], transformers_4: Path
) -> None:
    """The two faults that the spelling for both prevents; when this fails, it is no longer needed."""
    with pytest.raises(AssertionError, match="TokenizersBackend does not exist"):
        read(base, texts, transformers_4)
    config = files.read_json(base / "tokenizer_config.json")
    files.write_json(base / "tokenizer_config.json", {**config, "tokenizer_class": "PreTrainedTokenizerFast"})
    assert read(base, texts, transformers_4)["rope"] != 100000.0
