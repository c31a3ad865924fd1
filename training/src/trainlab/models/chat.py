"""Models, tokenizers and prompts: how a base model is loaded and how a question becomes tokens.

Training, scoring and serving all go through here, so base and tuned model see the same prompt, token for token.
"""

import heapq
import json
import logging
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import torch
from jinja2 import TemplateError
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from trainlab.config import ChatPhase, LanguagePhase, TextPhase
from trainlab.errors import UserError
from trainlab.models import compute, export, stored_weights
from trainlab.models.chat_template import messages, with_system_role
from trainlab.progress import note

if TYPE_CHECKING:  # costs 8 s of CPU and 230 MB, which the launcher of a pod spends on reading the template otherwise
    from transformers import PreTrainedModel

REHEARSED = 20  # rows: the longest text need not have the most tokens
AS_TEXT = "\ufdd0"  # a noncharacter of Unicode, which no text has
# A pad token that is not EOS: with pad = EOS the label of EOS is masked and the tuned model never stops.
PAD_CANDIDATES = ("<|pad|>", "<pad>", "[PAD]", "<|finetune_right_pad_id|>", "<|endoftext|>", "<unk>")


def prompt_ids(tokenizer: PreTrainedTokenizerBase, phase: LanguagePhase, question: str) -> list[int]:
    """Return the tokens of the prompt, up to where the answer begins; recipe cpt continues the text itself."""
    if not isinstance(phase, ChatPhase):
        return [*export.bos_prefix(tokenizer), *ids(tokenizer, as_text(tokenizer, question))]
    return ids(tokenizer, rendered(tokenizer, messages(phase, question)))


def rendered(tokenizer: PreTrainedTokenizerBase, chat: Sequence[Mapping[str, str]], answer: str | None = None) -> str:
    """Return what the chat template makes of a chat: up to where its answer begins, or, with `answer`, to the end of that turn.

    Control tokens that a turn spells out are marked as text, for `ids`.
    """
    turns = [dict(turn) for turn in chat]
    if answer is not None:
        turns.append({"role": "assistant", "content": answer})
    for turn in turns:
        turn["content"] = as_text(tokenizer, turn["content"])
    return str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=answer is None))


def padded(rows: Sequence[Sequence[int]], pad: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (ids, attention mask) of prompts, both (rows, longest), padded on the left."""
    longest = max(len(row) for row in rows)
    ids = torch.tensor([[pad] * (longest - len(row)) + list(row) for row in rows], device=device)
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows], device=device)
    return ids, mask


def answer_ids(tokenizer: PreTrainedTokenizerBase, phase: ChatPhase, question: str, answer: str) -> list[int]:
    """Return the tokens that follow the prompt: what the chat template adds to it for the answer, up to the end of the turn.

    They are those of the conversation as it is read in one piece. Where a token would reach over the seam (an answer that
    begins with a line break), the answer is read apart, as a model that generates it sees the prompt.
    """
    chat, (tail, end) = messages(phase, question), turn_end(tokenizer, phase)
    prompt = rendered(tokenizer, chat)
    text = rendered(tokenizer, chat, answer).removesuffix(tail) + end
    before, both = ids(tokenizer, prompt), ids(tokenizer, text)
    return both[len(before) :] if both[: len(before)] == before else ids(tokenizer, text[len(prompt) :])


def turn_end(tokenizer: PreTrainedTokenizerBase, phase: ChatPhase) -> tuple[str, str]:
    """Return what the chat template writes after an answer, and the part of it that is trained and scored.

    That part ends with the first token which the template has for it (ChatML: <|im_end|>, Phi-3: <|end|>, without the line
    break or the EOS that follow). It is the tokenizer's EOS where the template writes none. Raises UserError for a
    template that cannot render the phase's chats, or not so that the prompt is how the conversation begins.
    """
    try:
        return _turn_end(tokenizer, str(tokenizer.chat_template), phase.data.system_prompt)
    except (TemplateError, ValueError) as error:
        raise UserError(
            f"phase.model.source is {phase.model.source}: its chat template cannot be trained on: {error}; "
            "use another instruction-tuned model"
        ) from None


@lru_cache(maxsize=8)
def _turn_end(tokenizer: Any, template: str, system: str) -> tuple[str, str]:
    """As `turn_end`, once for each tokenizer, template and system prompt; raises ValueError instead."""
    chat = [{"role": "system", "content": system}, {"role": "user", "content": "a"}]
    prompt, texts = rendered(tokenizer, chat), [rendered(tokenizer, chat, answer) for answer in ("0", "1")]
    if not all(text.startswith(prompt) for text in texts):
        raise ValueError("the prompt that it renders is not the beginning of the conversation with the answer")
    differing = [place for place, pair in enumerate(zip(*texts, strict=True)) if len(set(pair)) > 1]
    if not differing:
        raise ValueError("it leaves out the answer")
    tail = texts[0][differing[-1] + 1 :]
    added = tokenizer.get_added_vocab()
    token = next((token for token in tokenizer.tokenize(tail) if token in added and token.strip()), None)
    if token is None:
        return tail, str(tokenizer.eos_token)
    return tail, tail[: tail.index(token) + len(token)]


def as_text(tokenizer: Any, text: str) -> str:
    """Return `text` with AS_TEXT in each control token that it spells out, so that `ids` reads that as text: a question must not open
    a turn, an answer not end before its end."""
    for token in controls(tokenizer, text):
        text = text.replace(token, token[0] + AS_TEXT + token[1:])
    return text


def controls(tokenizer: Any, text: str) -> list[str]:
    """Return the control tokens that a text spells out, the longest first."""
    return [token for token in _special(tokenizer, len(tokenizer)) if token in text]


@lru_cache(maxsize=8)
def _special(tokenizer: Any, tokens: int) -> list[str]:
    """Return the special tokens of a tokenizer that has so many `tokens`, the longest first."""
    special = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    return sorted((token for token in special if len(token) > 1), key=lambda token: (-len(token), token))


def ids(tokenizer: Any, text: str) -> list[int]:
    """Return the tokens of what `rendered` or `as_text` returned."""
    return [
        token
        for part in text.split(AS_TEXT)
        if part
        for token in tokenizer(part, add_special_tokens=False)["input_ids"]
    ]


def encode(tokenizer: PreTrainedTokenizerBase, phase: ChatPhase, row: Any) -> dict[str, list[int]]:
    """Return {"input_ids", "completion_mask"} of one row: mask 0 on the prompt, 1 on the answer (with its label and the end of its turn).

    Raises UserError if the row has more than `model.max_length` tokens: truncation would lose the end of the turn.
    """
    text = f"{row['label']}\n{row['answer']}" if row.get("label") else row["answer"]
    prompt, answer = prompt_ids(tokenizer, phase, row["question"]), answer_ids(tokenizer, phase, row["question"], text)
    total = len(prompt) + len(answer)
    if total > phase.model.max_length:
        raise UserError(
            f"row {row['id']}: {total} tokens, phase.model.max_length is {phase.model.max_length}; "
            "shorten the row or raise max_length"
        )
    return {"input_ids": prompt + answer, "completion_mask": [0] * len(prompt) + [1] * len(answer)}


def load_base(
    model_dir: Path, phase: LanguagePhase, dtype: torch.dtype | None = None
) -> tuple["PreTrainedModel", PreTrainedTokenizerBase]:
    """Return the untuned model, in `dtype` or what the phase computes in (eval mode, on `compute.device()`), and its tokenizer
    from a folder that `trainlab fetch` filled.

    Raises UserError if the folder holds no model.
    """
    stored_weights.check(model_dir)
    return _load(model_dir, phase, dtype)


def load_tuned(
    run_dir: Path, phase: LanguagePhase, model_dir: Path | None = None, dtype: torch.dtype | None = None
) -> tuple["PreTrainedModel", PreTrainedTokenizerBase]:
    """Return the tuned model (eval mode, on `compute.device()`) and its tokenizer from RUN_DIR/best_model, or, with adapters
    (`lora.rank`), RUN_DIR/lora_adapter on the base model in `model_dir`.

    Raises UserError if the run left no such result.
    """
    if phase.adapter_rank:
        return _load_adapter(run_dir / "lora_adapter", phase, model_dir)
    folder = run_dir / "best_model"
    if not (folder / "config.json").exists():
        raise UserError(f"{folder}: no tuned model; has the run finished?")
    return _load(folder, phase, dtype)


def load_tokenizer(model_dir: Path, phase: LanguagePhase) -> PreTrainedTokenizerBase:
    """Return the tokenizer of the base model, which makes the same prompts as in training; raises UserError for one that
    cannot be loaded, or whose chat template cannot be trained on."""
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(model_dir)
    except (OSError, ValueError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{model_dir}: its tokenizer cannot be loaded ({first}); fetch the model again") from None
    configure_tokenizer(tokenizer, phase)
    return tokenizer


def _load(
    folder: Path, phase: LanguagePhase, dtype: torch.dtype | None
) -> tuple["PreTrainedModel", PreTrainedTokenizerBase]:
    from transformers import AutoModelForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype or compute.dtype(phase))
    return prepare(model, tokenizer, phase), tokenizer


def _load_adapter(
    folder: Path, phase: LanguagePhase, model_dir: Path | None
) -> tuple["PreTrainedModel", PreTrainedTokenizerBase]:
    if model_dir is None or not (folder / "adapter_config.json").exists():
        raise UserError(f"{folder}: no adapter; has the run finished?")
    from peft import PeftModel

    model, tokenizer = load_base(model_dir, phase)
    # In the dtype of the file, as vLLM does; PEFT's own default is float32.
    tuned: Any = PeftModel.from_pretrained(model, folder, autocast_adapter_dtype=False)
    return tuned.eval(), tokenizer


def prepare(model: "PreTrainedModel", tokenizer: PreTrainedTokenizerBase, phase: LanguagePhase) -> "PreTrainedModel":
    """Set pad token, fixed template date and greedy generation on both; return the model in eval mode on `compute.device()`."""
    configure_tokenizer(tokenizer, phase)
    if tokenizer.pad_token_id is None or tokenizer.pad_token_id == tokenizer.eos_token_id:
        tokenizer.pad_token = _pad_token(tokenizer)
    resize_embeddings(model, len(tokenizer))
    tokenizer.padding_side = "left"  # generation; the training collator pads on the right itself
    model.config.pad_token_id = tokenizer.pad_token_id
    config = model.generation_config
    config.do_sample, config.pad_token_id = False, tokenizer.pad_token_id
    config.eos_token_id = stop_ids(model, tokenizer)
    if isinstance(phase, ChatPhase):
        turn = ids(tokenizer, turn_end(tokenizer, phase)[1])[-1]
        config.eos_token_id += [turn] if turn not in config.eos_token_id else []
    config.temperature = config.top_p = config.top_k = None
    model.get_output_embeddings().register_forward_pre_hook(_contiguous)
    moved: Any = model  # transformers types `to` as taking only a device
    return moved.to(compute.device()).eval()


def _contiguous(head: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """For the head: torch 2.13 copies a frozen weight once for each row of a slice of positions ([rows, last, hidden])."""
    return (args[0].contiguous(), *args[1:])


def configure_tokenizer(tokenizer: PreTrainedTokenizerBase, phase: LanguagePhase) -> None:
    """Fix the date of the chat template; raises UserError for a tokenizer without EOS or a usable chat template."""
    texts = isinstance(phase, TextPhase)  # continues texts: needs no chat template
    if not texts and isinstance(tokenizer.chat_template, str):  # of a parent that was trained on texts
        tokenizer.chat_template = export.restore_chat_template(tokenizer.chat_template)
    if tokenizer.eos_token_id is None or not (tokenizer.chat_template or texts):
        lacks, remedy = ("EOS", "a model") if texts else ("EOS or no chat template", "an instruction-tuned model")
        raise UserError(
            f"phase.model.source is {phase.model.source}: its tokenizer has no {lacks}; use {remedy} that has one"
        )
    if phase.model.chat_template_date and tokenizer.chat_template:
        tokenizer.chat_template = fixed_date(tokenizer.chat_template, phase.model.chat_template_date)
    if isinstance(phase, ChatPhase):
        if isinstance(tokenizer.chat_template, str):
            tokenizer.chat_template = with_system_role(tokenizer.chat_template)
        turn_end(tokenizer, phase)


def rehearse(model_dir: Path, phase: ChatPhase, rows: Sequence[Any]) -> None:
    """Encode the longest of the training `rows`, and tell how many spell out control tokens, before any rank starts.

    Raises UserError for a tokenizer or template that cannot be used, and for a row that is too long.
    """
    tokenizer = load_tokenizer(model_dir, phase)
    for row in heapq.nlargest(REHEARSED, rows, key=lambda row: len(row["question"]) + len(row["answer"])):
        encoded = encode(tokenizer, phase, row)
        end = tokenizer.decode(encoded["input_ids"][-1:])
        if encoded["input_ids"][-1] != ids(tokenizer, turn_end(tokenizer, phase)[1])[-1]:
            raise UserError(
                f"row {row['id']}: its answer ends with {end!r}, not with the end of a turn; correct the row"
            )
    spelled = [tokens for row in rows if (tokens := controls(tokenizer, f"{row['question']}\0{row['answer']}"))]
    if spelled:
        note(
            f"{len(spelled)} rows spell out control tokens of the model, such as {spelled[0][0]}; they are read as text"
        )


def resize_embeddings(model: "PreTrainedModel", tokens: int) -> None:
    """Make room for `tokens` tokens when the tokenizer has more than the model; new rows are the mean of the old ones.

    Not resize_token_embeddings' own random rows: every rank and the server would draw different ones.
    """
    embedding: Any = model.get_input_embeddings()
    known = embedding.num_embeddings
    if tokens <= known:
        return
    model.resize_token_embeddings(tokens, mean_resizing=False)
    for part in (model.get_input_embeddings(), model.get_output_embeddings()):
        weight: Any = getattr(part, "weight", None)
        if weight is not None:
            with torch.no_grad():
                weight[known:] = weight[:known].mean(dim=0)


def stop_ids(model: Any, tokenizer: Any) -> list[int]:
    """Return the tokens that end an answer: EOS, and what the model's generation settings name, to which `prepare` adds the
    end of a turn of the chat template.

    Some models end a turn with a token other than the tokenizer's EOS (Phi-3: <|end|>); a base that never stops looks
    bad.
    """
    named = model.generation_config.eos_token_id
    own = named if isinstance(named, list) else [] if named is None else [named]
    return [tokenizer.eos_token_id, *(token for token in own if token != tokenizer.eos_token_id)]


def fixed_date(template: str, date: str) -> str:
    """Return the chat template with `date` (ISO) in place of every strftime_now(...), so that prompts never change."""
    try:
        day = datetime.fromisoformat(date)
    except ValueError:
        raise UserError(f"phase.model.chat_template_date is {date!r}: not a date; write it as YYYY-MM-DD") from None
    return re.sub(r"strftime_now\(\s*(['\"])(.*?)\1\s*\)", lambda m: json.dumps(day.strftime(m.group(2))), template)


def _pad_token(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return a vocabulary token that can pad and is not EOS, or a new one."""
    vocabulary = tokenizer.get_vocab()
    for token in PAD_CANDIDATES:
        if token in vocabulary and token != tokenizer.eos_token:
            return token
    tokenizer.add_special_tokens({"pad_token": PAD_CANDIDATES[0]})
    return PAD_CANDIDATES[0]


def expand_gguf(folder: Path, name: str) -> None:
    """Write the model and tokenizer of the GGUF file `name` next to it, as safetensors in float32.

    Called once by `trainlab fetch`: expanding takes 10 s, and four ranks, the scoring and the server would all repeat
    it. What transformers loads from GGUF counts as quantized and refuses save_pretrained; so the weights are copied
    into a model built from the same configuration without its quantization entry.
    """
    import gguf
    from transformers import AutoModelForCausalLM, modeling_gguf_pytorch_utils
    from transformers.initialization import no_init_weights

    class Reader(gguf.GGUFReader):  # type: ignore[misc]
        def __setattr__(self, name: str, value: Any) -> None:
            """Keep the mapped file as a plain array, of which 250,000 slices are made: one of a memmap takes five times as long."""
            super().__setattr__(name, value.view(np.ndarray) if name == "data" else value)

    logging.getLogger("transformers.modeling_gguf_pytorch_utils").setLevel(logging.ERROR)
    # transformers reads the file's fields for config, weights and tokenizer, and makes its table of names for each module of the
    # model: once is 7 s of a processor instead of 18, and the same files
    reader, names = cache(Reader), cache(gguf.get_tensor_name_map)
    parsed: dict[int, Any] = {}  # by the place of a field in the one reader

    def parse(value: Any, kind: Any, plain: Any = modeling_gguf_pytorch_utils._gguf_parse_value) -> Any:
        if id(value) not in parsed:
            parsed[id(value)] = plain(value, kind)
        return parsed[id(value)]

    with (
        mock.patch.object(gguf, "GGUFReader", reader),
        mock.patch.object(gguf, "get_tensor_name_map", names),
        mock.patch.object(modeling_gguf_pytorch_utils, "_gguf_parse_value", parse),
    ):
        loaded = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
        settings = {key: value for key, value in loaded.config.to_dict().items() if key != "quantization_config"}
        with no_init_weights():  # every weight is copied below
            model = AutoModelForCausalLM.from_config(type(loaded.config).from_dict(settings), dtype=torch.float32)
        model.load_state_dict(loaded.state_dict(), strict=True)
        model.tie_weights()
        model.save_pretrained(folder)
        AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(folder)
    export.add_v4_keys(folder)
