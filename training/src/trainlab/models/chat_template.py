"""The messages of a question, and whether a model's chat template takes them, before anything is loaded. No torch."""

from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.config import ChatPhase
from trainlab.errors import UserError

SPECIAL_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")


def messages(phase: ChatPhase, question: str) -> list[dict[str, str]]:
    """Return the chat of one question: system prompt of the phase, then the question."""
    return [{"role": "system", "content": phase.data.system_prompt}, {"role": "user", "content": question}]


def check(model_dir: Path, phase: ChatPhase) -> None:
    """Raise UserError if the chat template of the model in `model_dir` refuses a system prompt, as Gemma's does.

    A model without a template passes: what loads it reports that (chat.settle).
    """
    template = _stored(model_dir)
    if template is None:
        return
    from jinja2 import TemplateError
    from transformers.utils.chat_template_utils import render_jinja_template

    names: Any = dict.fromkeys(SPECIAL_TOKENS, "")
    try:
        render_jinja_template(
            [messages(phase, "Is this water safe?")], chat_template=template, add_generation_prompt=True, **names
        )
    except TemplateError as error:
        raise UserError(
            f"phase.model.source is {phase.model.source}: its chat template fails on a system prompt and a question: "
            f"{error}; use a model whose template has a system role"
        ) from None


def _stored(model_dir: Path) -> str | None:
    """Return the chat template of a model folder, None if it has none; a file of its own goes first, as in transformers."""
    own, config = model_dir / "chat_template.jinja", model_dir / "tokenizer_config.json"
    if own.exists():
        return own.read_text(encoding="utf-8")
    template = files.read_json(config).get("chat_template") if config.exists() else None
    if isinstance(template, list):  # named ones
        template = next((named["template"] for named in template if named["name"] == "default"), None)
    return template
