"""What other engines find in a run's result: the base's own files, both spellings of transformers 4 and 5, the prompt."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny import make_phase
from trainlab import files
from trainlab.models import chat, export
from transformers import AutoConfig, AutoTokenizer

Make = Callable[..., Path]
ASKED = [{"role": "user", "content": "is it safe?"}]


def test_config_and_tokenizer_are_spelled_for_transformers_4_and_5(result: Make) -> None:
    folder = result()
    config, tokenizer = files.read_json(folder / "config.json"), files.read_json(folder / "tokenizer_config.json")
    assert config["rope_theta"] == config["rope_parameters"]["rope_theta"] == 100000.0
    assert tokenizer["tokenizer_class"] == "PreTrainedTokenizerFast" and "backend" not in tokenizer
    assert AutoConfig.from_pretrained(folder).rope_parameters["rope_theta"] == 100000.0


def test_files_of_the_base_are_kept_but_for_changed_keys(result: Make, base: Path) -> None:
    folder = result()
    assert (folder / "tokenizer.json").read_bytes() == (base / "tokenizer.json").read_bytes()
    before, after = files.read_json(base / "config.json"), files.read_json(folder / "config.json")
    changed = {key for key in before | after if before.get(key) != after.get(key)}
    assert changed == {"rope_theta", "tie_word_embeddings"}, changed  # the head is trained apart
    assert list(after)[: len(before)] == list(before)


def test_a_base_of_transformers_4_stays_as_it_is_byte_for_byte(tmp_path: Path, base: Path) -> None:
    config = files.read_json(base / "config.json")
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.42.3"
    text = json.dumps(config, indent=4)  # not as we write JSON
    (base / "config.json").write_text(text)
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base)
    model.save_pretrained(tmp_path / "out")
    export.save_config(model, base, tmp_path / "out")
    assert (tmp_path / "out" / "config.json").read_text() == text


def test_two_rope_bases_and_scaling_are_written_as_transformers_4_names_them() -> None:
    yarn = {"rope_theta": 1e6, "rope_type": "linear", "factor": 8.0}
    found = export._rope({"rope_parameters": {"full_attention": yarn, "sliding_attention": {"rope_theta": 1e4}}})
    scaling = {"rope_type": "linear", "factor": 8.0}
    assert found == {"rope_theta": 1e6, "rope_scaling": scaling, "rope_local_base_freq": 1e4}


@pytest.mark.parametrize("blocks", [{}, {"lora": {"rank": 4, "alpha": 8}}])
def test_a_bare_question_is_asked_as_it_was_scored(
    result: Make, base: Path, phase_dict: dict[str, Any], blocks: dict[str, Any]
) -> None:
    prompt = 'Be "brief" {{ }} %} \u00e9\U0001f525\nalways.'
    folder = result(data={"system_prompt": prompt}, **blocks)
    phase = make_phase(phase_dict, data={"system_prompt": prompt})
    scored = chat.prompt_ids(AutoTokenizer.from_pretrained(base), phase, "is it safe?")
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def ids(messages: Any) -> list[int]:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])

    assert ids(ASKED) == scored
    assert ids([{"role": "system", "content": prompt}, *ASKED]) == scored
    own = tokenizer.apply_chat_template([{"role": "system", "content": "Mine."}, *ASKED], tokenize=False)
    assert "Mine." in own and "always." not in own
    settings = files.read_json(folder / "generation_config.json")
    assert (settings["do_sample"], settings["temperature"], settings["max_new_tokens"]) == (False, 0.0, 12)


def test_a_later_stage_replaces_the_default_of_its_parent() -> None:
    one = export.with_system("{{ messages }}", "first")
    two = export.with_system(one, "second")
    assert "first" not in two and two == export.with_system("{{ messages }}", "second")
