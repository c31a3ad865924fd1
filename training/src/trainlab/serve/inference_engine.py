"""The models of one server: base, tuned and adapters by name, equal weights stored once; used by work.py and chat_server.py."""

import copy
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError

from trainlab.config import AdaptersPhase, ChatPhase, LanguagePhase, SftPhase, TextPhase
from trainlab.errors import UserError
from trainlab.models import chat, compute, layers, parents
from trainlab.serve.generation import Row, generate, padded_tokens
from trainlab.serve.protocol import ApiError

if TYPE_CHECKING:  # PEFT takes a second to import, and only adapters need it
    from trainlab.serve.promoted_runs import PromotedRuns


@dataclass(frozen=True)
class Hosted:
    """One model name that clients may request. Names with the same `lock` share a model object and take turns."""

    model: Any
    tokenizer: Any
    adapter: str | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def longest(self) -> int:
        """Characters of the longest token."""
        return max(len(token) for token in self.tokenizer.get_vocab())


class Engine:
    """All models of a run, and the adapters of others; thread-safe."""

    def __init__(
        self,
        phase: LanguagePhase,
        hosted: dict[str, Hosted],
        shared_bytes: int = 0,
        others: "PromotedRuns | None" = None,
        adapted: Hosted | None = None,
    ) -> None:
        """`others` are answered by `adapted`, the model that they add their adapters to."""
        self._phase, self._hosted, self._others, self._adapted = phase, hosted, others, adapted
        self._phases: dict[str, LanguagePhase] = {}
        self.shared_bytes = shared_bytes

    @property
    def names(self) -> list[str]:
        """Names of the models, base first."""
        return list(self._hosted)

    def others(self) -> list[str]:
        """Return the other runs that may be asked; reads the volume."""
        return self._others.names() if self._others else []

    def admit(self, name: str) -> None:
        """Raise ApiError unless `name` may be asked; reads the volume for a name that is not in `names`."""
        if name in self._hosted:
            return
        if self._others is None:
            message = f"model {name!r} does not exist; this server has {', '.join(self.names)}"
            raise ApiError(404, message, param="model", code="model_not_found")
        self._phases[name] = self._others.find(name).phase

    def answer_tokens(self, name: str) -> int:
        """Return how many tokens an answer has at most where a client does not say, as it was scored."""
        return self._phases.get(name, self._phase).evaluate.max_new_tokens

    @property
    def context(self) -> int:
        """Maximum tokens of prompt and answer together: as at vLLM (_serving.tpl), and as the planner counts memory for them."""
        return min(self._positions, self._phase.model.max_length + self._phase.serve.max_tokens)

    @property
    def _positions(self) -> int:
        """Tokens that the models can tell apart by their place."""
        return min(int(h.model.config.max_position_embeddings) for h in self._hosted.values())

    def turn(self, name: str) -> int:
        """Return what the names that take turns have in common."""
        return id(self._entry(name).lock)

    def least_tokens(self, name: str, texts: Sequence[str]) -> int:
        """Return a number of tokens that `texts` have at least, without reading them as tokens.

        White space does not count: some tokenizers drop it beside special tokens.
        """
        return sum(len(part) for text in texts for part in text.split()) // self._entry(name).longest

    def chat_ids(self, name: str, messages: Sequence[dict[str, str]]) -> list[int]:
        """Return the prompt tokens of a chat; the phase's system prompt is prepended when the chat has none.

        A model of recipe cpt has no notion of turns: it continues the text of the last message.
        """
        phase = self._phases.get(name, self._phase)
        if not isinstance(phase, ChatPhase):
            return self.text_ids(name, messages[-1]["content"])
        if messages[0]["role"] != "system":
            messages = [{"role": "system", "content": phase.data.system_prompt}, *messages]
        tokenizer = self._entry(name).tokenizer
        return chat.ids(tokenizer, chat.rendered(tokenizer, messages))

    def text_ids(self, name: str, text: str) -> list[int]:
        """Return the tokens of a plain text, for recipe cpt starting as its blocks do."""
        tokenizer = self._entry(name).tokenizer
        if isinstance(self._phase, TextPhase):
            return chat.prompt_ids(tokenizer, self._phase, text)
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])

    def fits(self, rows: Sequence[Row]) -> bool:
        """Tell whether a batch needs no more memory for keys and values than the planner counts for one model (plan/device_memory.py)."""
        return padded_tokens(rows) <= max(
            self.context, min(self._phase.serve.max_concurrency * self.context, self._positions)
        )

    def generate(self, name: str, rows: Sequence[Row]) -> None:
        """Answer `rows` as one batch with the model `name`; waits while the same model object answers another."""
        hosted = self._entry(name)
        # Asked again, in the model's thread: the run may have changed while the request stood in line.
        run = self._others.find(name) if self._others and name not in self._hosted else None
        with hosted.lock:
            if run and self._others:
                self._others.select(run)
            elif hosted.adapter is not None:
                hosted.model.set_adapter(hosted.adapter)
            generate(hosted.model, hosted.tokenizer, rows)

    def _entry(self, name: str) -> Hosted:
        return self._hosted[name] if name in self._hosted or not self._adapted else self._adapted


def load(phase: LanguagePhase, models: Path, run_dir: Path) -> Engine:
    """Load base, tuned (best_model/, else the adapter in lora_adapter/) and further adapters of a run.

    Raises UserError where a file cannot be read, such as one that a killed pod or a full volume left half written.
    """
    try:
        return _loaded(phase, models, run_dir)
    except (OSError, RuntimeError, SafetensorError) as error:
        remedy = f"fetch the model again if it is of the base, remove {run_dir} and train again if it is of the run"
        raise UserError(f"{run_dir}: the models cannot be loaded: {error}; {remedy}") from error


def _loaded(phase: LanguagePhase, models: Path, run_dir: Path) -> Engine:
    dtype = compute.served_dtype(phase)
    base, tokenizer = chat.load_base(parents.model_dir(phase, models, run_dir), phase, dtype)
    hosted = {"base": Hosted(base, tokenizer)}
    if isinstance(phase, AdaptersPhase):
        adapted = Hosted(_with_adapter(base, phase), tokenizer)
        return Engine(phase, hosted, _bytes(base), _others(phase, run_dir, base, adapted), adapted)
    adapters = find_adapters(run_dir)
    shared = 0
    if (run_dir / "best_model").is_dir() or not adapters:
        tuned, tuned_tokenizer = chat.load_tuned(run_dir, phase, dtype=dtype)
        shared = share_equal(tuned, base)
        hosted["tuned"] = Hosted(tuned, tuned_tokenizer)
    elif "adapter" in adapters:
        adapters["tuned"] = adapters.pop("adapter")
        shared = _bytes(base)
    hosted |= _load_adapters(base, tokenizer, adapters)
    if "tuned" not in hosted:
        raise UserError(f"{run_dir}: neither best_model/ nor an adapter in lora_adapter/ itself; has the run finished?")
    tuned_model = hosted["tuned"]
    if tuned_model.adapter and isinstance(phase, SftPhase) and phase.serve.max_adapters:
        return Engine(phase, hosted, shared, _others(phase, run_dir, base, tuned_model), tuned_model)
    return Engine(phase, hosted, shared)


def _others(phase: SftPhase | AdaptersPhase, run_dir: Path, base: Any, adapted: Hosted) -> "PromotedRuns":
    from trainlab.serve.promoted_runs import PromotedRuns

    return PromotedRuns(run_dir, base, phase, adapted.model)


def _with_adapter(base: Any, phase: AdaptersPhase) -> Any:
    """Return the base's weights as PEFT's model, to which the owners' adapters are added as they are asked."""
    from peft import get_peft_model

    shell = _shell(base)
    return get_peft_model(shell, layers.lora_config(shell, phase), autocast_adapter_dtype=False).eval()


def _bytes(model: torch.nn.Module) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


def find_adapters(run_dir: Path) -> dict[str, Path]:
    """Return the PEFT adapters in RUN_DIR/lora_adapter: the folder itself as "adapter", subfolders by their names."""
    top = run_dir / "lora_adapter"
    adapters = {"adapter": top} if (top / "adapter_config.json").is_file() else {}
    for path in sorted(top.glob("*/adapter_config.json")):
        if path.parent.name in ("base", "tuned", "adapter"):
            raise UserError(f"{path.parent}: another model of the server already has this name; rename the folder")
        adapters[path.parent.name] = path.parent
    return adapters


def share_equal(model: torch.nn.Module, base: torch.nn.Module) -> int:
    """Let `model` use the storage of `base` for each parameter with the same name and values; return the bytes saved.

    Fine-tuning the last layers leaves most weights as they were: base and tuned then need little more than one model.
    """
    theirs = dict(base.named_parameters(remove_duplicate=False))
    saved = 0
    for name, own in model.named_parameters(remove_duplicate=False):
        other = theirs.get(name)
        if other is None or own.data_ptr() == other.data_ptr():
            continue
        if own.dtype == other.dtype and own.shape == other.shape and torch.equal(own, other):
            saved += own.numel() * own.element_size()
            own.data = other.data
    return saved


def _load_adapters(base: Any, tokenizer: Any, adapters: dict[str, Path]) -> dict[str, Hosted]:
    """Return one entry per adapter, all on one copy of the base's modules around the base's own weights."""
    if not adapters:
        return {}
    from peft import PeftModel

    shell = _shell(base)
    model: Any = None
    for name, path in adapters.items():
        if model is None:
            model = PeftModel.from_pretrained(shell, path, adapter_name=name, autocast_adapter_dtype=False)
        else:
            model.load_adapter(path, adapter_name=name, autocast_adapter_dtype=False)
    lock = threading.Lock()
    return {name: Hosted(model.eval(), tokenizer, name, lock) for name in adapters}


def _shell(base: Any) -> Any:
    """Return a copy of a model's modules around its own weights: PEFT changes modules in place, but the base must stay as it is."""
    return copy.deepcopy(base, {id(parameter): parameter for parameter in base.parameters()})
