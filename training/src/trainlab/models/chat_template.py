"""The messages of a question, and whether a model's chat template takes them, before anything is loaded. No torch, no transformers."""

import json
import re
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

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
OWN_FILE, CONFIG_FILE = "chat_template.jinja", "tokenizer_config.json"
OF_TRAINING = re.compile(r"\{%(-?)\s*(?:end)?generation\s*(-?)%\}")
"""Tags of transformers around what a model learns. They render nothing, so they are read as comments."""
PROBE, QUESTION = "Say it briefly.", "Is this water safe?"


@lru_cache(maxsize=8)
def with_system_role(template: str) -> str:
    """Return a chat template that tells the model a system prompt: where it refuses or drops the role (Gemma 2, Mistral 0.1),
    the prompt goes before the text of the first turn."""
    from jinja2 import TemplateError

    for candidate in (template, FOLD + template):
        try:
            if PROBE in _rendered(candidate, PROBE):
                return candidate
        except (TemplateError, TypeError):
            continue
    return template


def check(model_dir: Path, phase: ChatPhase) -> None:
    """Raise UserError if the chat template of the model in `model_dir` renders no chat of the phase.

    A model without a template passes: what loads it reports that (chat.configure_tokenizer).
    """
    own, config = model_dir / OWN_FILE, model_dir / CONFIG_FILE
    text = own.read_text(encoding="utf-8") if own.exists() else None
    template = stored(text, files.read_json(config) if config.exists() else {})
    if template is not None:
        check_text(template, phase)


def check_text(template: str, phase: ChatPhase) -> None:
    """Raise UserError if a chat template renders no chat of the phase."""
    from jinja2 import TemplateError

    try:
        why = (
            ""
            if QUESTION in _rendered(with_system_role(template), phase.data.system_prompt)
            else "it leaves the question out"
        )
    except (TemplateError, TypeError) as error:
        why = str(error)
    if "strftime_now" in template and not phase.model.chat_template_date:
        raise UserError(
            f"phase.model.source is {phase.model.source}: its chat template writes today's date, so training, scoring and serving would ask "
            "differently on different days; set phase.model.chat_template_date, for example 2026-01-01"
        )
    if why:
        raise UserError(
            f"phase.model.source is {phase.model.source}: its chat template fails on a system prompt and a question: "
            f"{why}; use another instruction-tuned model"
        )


def _rendered(template: str, system: str) -> str:
    """Render as transformers does (render_jinja_template), which is not where the playbooks run; a test compares both."""
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    world = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    world.filters["tojson"] = lambda value, **form: json.dumps(value, **{"ensure_ascii": False} | form)
    world.globals |= {"raise_exception": _refuse, "strftime_now": lambda form: datetime.now().strftime(form)}
    chat = [{"role": "system", "content": system}, {"role": "user", "content": QUESTION}]
    names: dict[str, Any] = dict.fromkeys(SPECIAL_TOKENS, "")
    text = world.from_string(OF_TRAINING.sub(r"{#\1 \2#}", template))
    return text.render(messages=chat, tools=None, documents=None, add_generation_prompt=True, **names)


def _refuse(message: str) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(message)


def stored(own: str | None, config: Any) -> str | None:
    """Return the chat template of a model: its own file's, else that of its tokenizer's configuration, as in transformers; or None."""
    template = own if own is not None else config.get("chat_template")
    if isinstance(template, list):  # named ones
        template = next((named["template"] for named in template if named["name"] == "default"), None)
    return template
