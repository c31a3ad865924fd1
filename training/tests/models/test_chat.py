"""Prompts to the token: mask, EOS, length, pad token, fixed date, and loading of what was saved."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from tiny import make_phase, write_data
from trainlab import recipes
from trainlab.errors import UserError
from trainlab.evaluation import answer_score
from trainlab.models import chat

ROW = {"id": "w-1", "question": "is it safe?", "answer": "yes"}


def test_preflight_and_fetch_refuse_a_template_without_a_system_role(
    tiny_model: Path, phase_dict: dict[str, Any], tmp_path: Path
) -> None:
    """As Gemma's; and no traceback of Jinja in every rank, once pods are scheduled."""
    template = (
        "{{ bos_token + '' }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
        "{% endif %}{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    )
    model = tmp_path / "tiny"
    shutil.copytree(tiny_model, model)
    recipe, data = recipes.of(make_phase(phase_dict)), write_data(tmp_path / "data")
    recipe.preflight(model, data)
    (model / "chat_template.jinja").write_text(template, encoding="utf-8")
    for start in (lambda: recipe.preflight(model, data), lambda: recipe.fetch(tmp_path, None)):
        with pytest.raises(
            UserError,
            match=r"^phase.model.source is pvc:tiny: its chat template .*: System role not supported; use a model ",
        ):
            start()


def test_prompt_is_masked_and_eos_is_part_of_the_answer(tiny_model: Path, phase_dict: dict[str, Any]) -> None:
    phase = make_phase(phase_dict)
    _, tokenizer = chat.load_base(tiny_model, phase)
    row = chat.encode(tokenizer, phase, ROW)
    answer = [i for i, m in zip(row["input_ids"], row["completion_mask"], strict=True) if m]
    assert tokenizer.decode(answer) == "yes<|im_end|>" and answer[-1] == tokenizer.eos_token_id
    prompt = row["input_ids"][: -len(answer)]
    assert prompt == chat.prompt_ids(tokenizer, phase, ROW["question"])
    assert str(tokenizer.decode(prompt)).endswith("is it safe?<|im_end|>\n<|im_start|>assistant\n")


def test_an_end_of_turn_that_is_not_the_tokenizers_eos_ends_an_answer_too(
    tiny_model: Path, phase_dict: dict[str, Any]
) -> None:
    phase = make_phase(phase_dict)
    model, tokenizer = chat.load_base(tiny_model, phase)
    assert chat.stop_ids(model, tokenizer) == [tokenizer.eos_token_id]
    other = tokenizer.convert_tokens_to_ids("a")
    model.generation_config.eos_token_id = [other, tokenizer.eos_token_id]
    assert chat.stop_ids(chat.prepare(model, tokenizer, phase), tokenizer) == [tokenizer.eos_token_id, other]
    texts = answer_score.answers(model, tokenizer, phase, [f"q {i}" for i in range(6)], say=lambda _: None)
    for text in texts:
        ids = tokenizer(text["text"], add_special_tokens=False)["input_ids"]
        assert other not in ids[:-1] and text["text_tokens"] <= phase.evaluate.max_new_tokens


def test_a_longer_row_is_refused_by_its_id(tiny_model: Path, phase_dict: dict[str, Any]) -> None:
    phase = make_phase(phase_dict, model={"max_length": 32})
    _, tokenizer = chat.load_base(tiny_model, phase)
    with pytest.raises(UserError, match=r"row w-1: \d+ tokens, phase.model.max_length is 32"):
        chat.encode(tokenizer, phase, {**ROW, "answer": "yes " * 40})


def test_pad_is_never_eos(tiny_model: Path, phase_dict: dict[str, Any]) -> None:
    phase = make_phase(phase_dict)
    model, tokenizer = chat.load_base(tiny_model, phase)
    tokenizer.pad_token = tokenizer.eos_token
    chat.prepare(model, tokenizer, phase)
    assert tokenizer.pad_token == "<|endoftext|>" and model.generation_config.pad_token_id == tokenizer.pad_token_id
    assert model.generation_config.do_sample is False


def test_date_of_the_template_is_fixed() -> None:
    template = "{% set today = strftime_now('%d %B %Y') %}{{ strftime_now(\"%Y\") }}"
    assert chat.fixed_date(template, "2026-01-02") == '{% set today = "02 January 2026" %}{{ "2026" }}'
    with pytest.raises(UserError, match="write it as YYYY-MM-DD"):
        chat.fixed_date(template, "yesterday")


def test_a_folder_without_model_names_the_remedy(tmp_path: Path, phase_dict: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="run `trainlab fetch` first"):
        chat.load_base(tmp_path, make_phase(phase_dict))
