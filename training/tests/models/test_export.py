"""What other engines find in a run's result: the base's own files, both spellings of transformers 4 and 5, the prompt."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from tiny import make_phase
from trainlab import files
from trainlab.errors import UserError
from trainlab.evaluation import answer_score
from trainlab.models import chat, export
from trainlab.serve import inference_engine
from trainlab.serve.api import create_app
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
    """Whatever the date is, and by our own server as well."""
    template = base / "chat_template.jinja"
    template.write_text("{{ strftime_now('%d %B %Y') }}\n" + template.read_text())
    prompt = 'Be "brief" {{ }} %} \u00e9\U0001f525\nalways.'
    blocks |= {"data": {"system_prompt": prompt}, "model": {"source": "pvc:base", "chat_template_date": "2026-01-02"}}
    folder = result(**blocks)
    phase = make_phase(phase_dict, **blocks)
    scored = chat.prompt_ids(chat.load_tokenizer(base, phase), phase, "is it safe?")
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def ids(messages: Any) -> list[int]:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])

    assert ids(ASKED) == scored and "02 January 2026" in tokenizer.decode(scored)
    assert ids([{"role": "system", "content": prompt}, *ASKED]) == scored
    own = tokenizer.apply_chat_template([{"role": "system", "content": "Mine."}, *ASKED], tokenize=False)
    assert "Mine." in own and "always." not in own
    settings = files.read_json(folder / "generation_config.json")
    assert (settings["do_sample"], settings["temperature"], settings["max_new_tokens"]) == (False, 0.0, 12)
    engine = inference_engine.load(phase, base.parent, folder.parent)
    model, own_tokenizer = chat.load_tuned(folder.parent, phase, base)
    [answer] = answer_score.answers(model, own_tokenizer, phase, ["is it safe?"])
    with TestClient(create_app(phase, folder.parent, lambda: engine)) as client:
        while client.get("/ready").status_code != 200:
            time.sleep(0.02)
        reply = client.post("/v1/chat/completions", json={"model": "tuned", "messages": ASKED}).json()
    assert reply["choices"][0]["message"]["content"].strip() == answer["text"]
    assert reply["usage"]["completion_tokens"] == answer["text_tokens"]


@pytest.mark.parametrize("starts", [False, True])
@pytest.mark.parametrize("chats", [False, True])
def test_a_phase_of_running_text_leaves_a_template_that_continues_it(
    tmp_path: Path, base: Path, phase_dict: dict[str, Any], starts: bool, chats: bool
) -> None:
    """With BOS where the tokenizer starts texts so; a later stage that trains on chats finds its template again."""
    if starts:
        content = files.read_json(base / "tokenizer.json")
        special = {"<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]}}
        one = [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
        content["post_processor"] = {
            "type": "TemplateProcessing",
            "single": one,
            "pair": one,
            "special_tokens": special,
        }
        files.write_json(base / "tokenizer.json", content)
    before = (base / "chat_template.jinja").read_text()
    if not chats:
        (base / "chat_template.jinja").unlink()
    phase = make_phase(phase_dict, recipe="cpt", data={"source": "pvc:x", "column": "text"})
    tokenizer = chat.load_tokenizer(base, phase)
    export.save_tokenizer(tokenizer, tmp_path / "out", phase)
    exported = AutoTokenizer.from_pretrained(tmp_path / "out")
    for asked in ("The city {{ }}\n", [{"type": "text", "text": "The city "}, {"type": "text", "text": "{{ }}\n"}]):
        text = exported.apply_chat_template(
            [{"role": "system", "content": "x"}, {"role": "user", "content": asked}], tokenize=False
        )
        found = exported(text, add_special_tokens=False)["input_ids"]
        assert found == chat.prompt_ids(tokenizer, phase, "The city {{ }}\n") and (found[0] == 1) is starts
    again = export.as_completion_template(exported.chat_template, starts)
    assert again == exported.chat_template
    if chats:
        assert chat.load_tokenizer(tmp_path / "out", make_phase(phase_dict)).chat_template == before
    else:
        with pytest.raises(UserError, match="no chat template"):
            chat.load_tokenizer(tmp_path / "out", make_phase(phase_dict))


def test_a_later_stage_replaces_the_default_of_its_parent() -> None:
    one = export.with_system("{{ messages }}", "first")
    two = export.with_system(one, "second")
    assert "first" not in two and two == export.with_system("{{ messages }}", "second")
