"""The messages of a question, and whether a model's chat template takes them, before anything is loaded. No torch."""

from functools import lru_cache
from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.config import ChatPhase
from trainlab.errors import UserError

SPECIAL_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")


def messages(phase: ChatPhase, question: str) -> list[dict[str, str]]:
    """Return the chat of one question: system prompt of the phase, then the question."""
    return [{"role": "system", "content": phase.data.system_prompt}, {"role": "user", "content": question}]


FOLD = (  # the content of a turn may be a list of parts, as engines pass it (vLLM: content format)
    "{#- trainlab: a system message goes into the first turn -#}"
    "{%- if messages and messages[0]['role'] in ['system', 'developer'] -%}"
    "{%- set prompt, messages = messages[0]['content'], messages[1:] -%}"
    "{%- if prompt and messages -%}"
    "{%- set first = messages[0]['content'] -%}"
    "{%- set first = prompt + '\\n\\n' + first if first is string else [{'type': 'text', 'text': prompt}] + first -%}"
    "{%- set messages = [{'role': messages[0]['role'], 'content': first}] + messages[1:] -%}"
    "{%- endif -%}{%- endif -%}{#- end -#}"
)
PROBE, QUESTION = "Say it briefly.", "Is this water safe?"


@lru_cache(maxsize=8)
def with_system_role(template: str) -> str:
    """Return a chat template that tells the model a system prompt: where it refuses or drops the role (Gemma 2, Mistral 0.1),
    the prompt goes before the text of the first turn."""
    from jinja2 import TemplateError

    for given in (template, FOLD + template):
        try:
            if PROBE in _rendered(given, PROBE):
                return given
        except (TemplateError, TypeError):
            continue
    return template


def check(model_dir: Path, phase: ChatPhase) -> None:
    """Raise UserError if the chat template of the model in `model_dir` renders no chat of the phase.

    A model without a template passes: what loads it reports that (chat.settle).
    """
    template = _stored(model_dir)
    if template is None:
        return
    from jinja2 import TemplateError

    try:
        why = (
            ""
            if QUESTION in _rendered(with_system_role(template), phase.data.system_prompt)
            else "it leaves the question out"
        )
    except (TemplateError, TypeError) as error:
        why = str(error)
    if why:
        raise UserError(
            f"phase.model.source is {phase.model.source}: its chat template fails on a system prompt and a question: "
            f"{why}; use another instruction-tuned model"
        )


def _rendered(template: str, system: str) -> str:
    from transformers.utils.chat_template_utils import render_jinja_template

    names: Any = dict.fromkeys(SPECIAL_TOKENS, "")
    chat = [{"role": "system", "content": system}, {"role": "user", "content": QUESTION}]
    found: Any = render_jinja_template([chat], chat_template=template, add_generation_prompt=True, **names)
    return str(found[0][0])


def _stored(model_dir: Path) -> str | None:
    """Return the chat template of a model folder, None if it has none; a file of its own goes first, as in transformers."""
    own, config = model_dir / "chat_template.jinja", model_dir / "tokenizer_config.json"
    if own.exists():
        return own.read_text(encoding="utf-8")
    template = files.read_json(config).get("chat_template") if config.exists() else None
    if isinstance(template, list):  # named ones
        template = next((named["template"] for named in template if named["name"] == "default"), None)
    return template
