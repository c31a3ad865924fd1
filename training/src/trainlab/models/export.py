"""What a run leaves as other engines read it: config, tokenizer, chat template and generation settings beside the weights.

The base's own files are kept byte for byte but for what changed. transformers 5 writes two things that transformers 4.57
(and so vLLM before 0.19.1) does not understand: the class TokenizersBackend, which it refuses, and `rope_parameters`,
which it silently ignores; `add_v4_keys` adds the spelling that both take alike.
"""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.config import ChatPhase, LanguagePhase, TextPhase

# The files of tokenizers that transformers saves; what the base lacks of them stays away.
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
)
# transformers' note of itself and of the reading process; no property of the model.
OF_THE_READER = ("transformers_version", "_name_or_path", "dtype", "torch_dtype")
OF_VERSION_5 = ("backend", "is_local", "local_files_only")
# The template before is kept in a branch that is never taken: a later stage that trains on chats wants it back.
CONTINUES = "{#- trainlab: continues the text of the last message -#}"
DEAD_BRANCH = ("{%- if false -%}", "{%- endif -%}{#- end -#}")
DEFAULT_SYSTEM = re.compile(r"\{#- trainlab: default system message -#\}.*?\{#- end -#\}", re.S)


def bos_prefix(tokenizer: Any) -> list[int]:
    """Return [BOS] if the tokenizer puts one before every text (Gemma), else [] (SmolLM2)."""
    token = tokenizer.bos_token_id
    return [token] if token is not None and tokenizer("a")["input_ids"][:1] == [token] else []


def save_tokenizer(tokenizer: Any, folder: Path, phase: LanguagePhase) -> None:
    """Write the tokenizer's files: those of the folder it came from, with the pad token and the chat template of the phase."""
    tokenizer.save_pretrained(folder)
    base = Path(tokenizer.name_or_path)
    if (base / "tokenizer.json").is_file():
        _keep(tokenizer, base, folder)
    if isinstance(phase, ChatPhase) and isinstance(tokenizer.chat_template, str):
        _set_template(folder, with_system(tokenizer.chat_template, phase.data.system_prompt))
    if isinstance(phase, TextPhase) and not isinstance(tokenizer.chat_template, dict):
        _set_template(folder, as_completion_template(tokenizer.chat_template, bool(bos_prefix(tokenizer))))
    add_v4_keys(folder)


def save_config(model: Any, base: Path, folder: Path) -> None:
    """Replace the config.json that transformers wrote into `folder` by the base's with the keys that differ.

    A model without a base folder keeps what transformers wrote.
    """
    if (base / "config.json").is_file():
        content = files.read_json(base / "config.json")
        before, after = type(model.config).from_dict(dict(content)).to_dict(), model.config.to_dict()
        changed = {
            key: value for key, value in after.items() if key not in OF_THE_READER and before.get(key, ...) != value
        }
        name = "torch_dtype" if "torch_dtype" in content else "dtype"
        changed[name] = files.read_json(folder / "config.json").get("dtype", content.get(name))
        _write_changed(base / "config.json", folder / "config.json", changed)
    add_v4_keys(folder)


def save_generation(model: Any, folder: Path, phase: LanguagePhase) -> None:
    """Write generation_config.json: greedy, up to the tokens that the scoring allows, the model's own end tokens.

    temperature 0 beside do_sample: vLLM reads the former, transformers the latter. Not GenerationConfig.save_pretrained,
    which refuses the two together.
    """
    own = {key: value for key, value in model.generation_config.to_diff_dict().items() if key not in OF_THE_READER}
    own |= {"do_sample": False, "temperature": 0.0, "max_new_tokens": phase.evaluate.max_new_tokens}
    files.write_json(folder / "generation_config.json", own)


def add_v4_keys(folder: Path) -> None:
    """Add to config.json and tokenizer_config.json in `folder` what transformers 4.57 reads; 5 reads both the same."""
    path = folder / "config.json"
    if path.is_file():
        _write_changed(path, path, _rope(files.read_json(path)))
    path = folder / "tokenizer_config.json"
    if path.is_file():
        before = files.read_json(path)
        content = dict(before)
        if content.get("tokenizer_class") == "TokenizersBackend":
            content["tokenizer_class"] = "PreTrainedTokenizerFast"
            for key in OF_VERSION_5:
                content.pop(key, None)
        if isinstance(content.get("extra_special_tokens"), list):  # 4.57 takes a mapping only
            content["additional_special_tokens"] = content.pop("extra_special_tokens")
        if content != before:
            files.write_json(path, content)


def with_system(template: str, prompt: str) -> str:
    """Return the chat template with `prompt` as the system message of every chat that brings none."""
    # Jinja reads JSON's escapes, but not its surrogate pairs: hence ensure_ascii=False.
    message = json.dumps({"role": "system", "content": prompt}, ensure_ascii=False)
    opening = (
        "{#- trainlab: default system message -#}"
        "{%- if messages and messages[0]['role'] not in ['system', 'developer'] -%}"
        f"{{%- set messages = [{message}] + messages -%}}"
        "{%- endif -%}{#- end -#}"
    )
    return opening + DEFAULT_SYSTEM.sub("", template, count=1)


def as_completion_template(template: str | None, bos: bool) -> str:
    """Return a chat template that continues the text of the last message, after BOS if the tokenizer starts texts so.

    What a phase that trains on running text is scored and served as: its model knows no turns.
    """
    # Engines pass the content as text or as parts, depending on what they find in the template (vLLM: content format).
    text = (
        "{%- set content = messages[-1]['content'] -%}"
        "{%- if content is string -%}{{- content -}}"
        "{%- else -%}{%- for part in content -%}{{- part['text'] -}}{%- endfor -%}{%- endif -%}"
    )
    begin = "{{- bos_token -}}" if bos else ""
    return f"{CONTINUES}{begin}{text}{DEAD_BRANCH[0]}{restore_chat_template(template) or ''}{DEAD_BRANCH[1]}"


def restore_chat_template(template: str | None) -> str | None:
    """Return the chat template that `as_completion_template` replaced; None if there was none."""
    if not template or not template.startswith(CONTINUES):
        return template
    return template.partition(DEAD_BRANCH[0])[2].removesuffix(DEAD_BRANCH[1]) or None


def _keep(tokenizer: Any, base: Path, folder: Path) -> None:
    """Put the base's tokenizer files into `folder`; a tokenizer with more tokens keeps its own tokenizer.json."""
    from tokenizers import Tokenizer

    grown = Tokenizer.from_file(str(base / "tokenizer.json")).get_vocab_size() != len(tokenizer)
    for name in TOKENIZER_FILES:
        if name == "tokenizer.json" and grown:
            continue
        (folder / name).unlink(missing_ok=True)
        if (base / name).is_file():
            shutil.copyfile(base / name, folder / name)
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (folder / name).is_file():
            content = files.read_json(folder / name)
            pad = content.get("pad_token")
            if (pad.get("content") if isinstance(pad, dict) else pad) != tokenizer.pad_token:
                _write_changed(folder / name, folder / name, {"pad_token": tokenizer.pad_token})


def _set_template(folder: Path, template: str) -> None:
    """Write the template as a file, and also into tokenizer_config.json where the base has its own there."""
    files.write_text(folder / "chat_template.jinja", template)
    path = folder / "tokenizer_config.json"
    if "chat_template" in files.read_json(path):
        _write_changed(path, path, {"chat_template": template})


def _rope(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return transformers 4's keys for the `rope_parameters` of transformers 5: {} when there are none."""
    rope = config.get("rope_parameters") or {}
    full = rope.get("full_attention", rope)
    keys: dict[str, Any] = {}
    if "rope_theta" in full:
        keys["rope_theta"] = full["rope_theta"]
    if full.get("rope_type", "default") != "default":
        keys["rope_scaling"] = {key: value for key, value in full.items() if key != "rope_theta"}
    local = rope.get("sliding_attention") or {}
    if "rope_theta" in local:  # Gemma 3: two bases
        keys["rope_local_base_freq"] = local["rope_theta"]
    return keys


def _write_changed(source: Path, target: Path, changed: Mapping[str, Any]) -> None:
    """Write the JSON of `source` with `changed` keys to `target`; the same bytes when nothing differs."""
    content = files.read_json(source)
    if all(key in content and content[key] == value for key, value in changed.items()):
        if source != target:
            shutil.copyfile(source, target)
    else:
        files.write_json(target, {**content, **changed})
