"""Other runs on the volume that a server answers for: promoted, with an adapter that fits its base; used by inference_engine.py.

Nothing of a file is trusted: a volume may be another team's too, and a run may be half written."""

import os
import re
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import torch
from peft import LoraConfig, set_peft_model_state_dict
from peft.tuners.tuners_utils import check_target_module_exists
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as tensors_of

from trainlab import files
from trainlab.config import AdaptersPhase, ChatPhase, SftPhase
from trainlab.config.loading import load_values
from trainlab.config.types import OBJECT
from trainlab.errors import UserError
from trainlab.evaluation.gate import read_gate
from trainlab.plan.checks import served_rank
from trainlab.serve.protocol import ApiError

WEIGHTS, SETTINGS = "lora_adapter/adapter_model.safetensors", "lora_adapter/adapter_config.json"
READ = ("gate.json", "manifest.json", "phase.json", SETTINGS, WEIGHTS)
"""Files of a run that decide; while none changes, neither does the answer."""
USED = ("r", "lora_alpha", "target_modules", "layers_to_transform", "layers_pattern", "use_rslora")
UNUSED = (
    "peft_type",  # checked
    "task_type",
    "inference_mode",
    "base_model_name_or_path",  # the manifest decides
    "revision",
    "peft_version",
    "auto_mapping",
    "lora_dropout",  # of training
    "init_lora_weights",  # the same; some kinds would change the base
)
PREFIX = "base_model.model."
NAME = re.compile(OBJECT)
LAYER = re.compile(r"[\w.]+")
RETRAIN = "train the run again"
MAX_SHOWN = 80  # characters of an unknown name that an answer repeats

Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class PromotedRun:
    """A run that may be asked, as its files were; `stamp` tells whether they still are."""

    name: str
    folder: Path
    phase: ChatPhase
    config: LoraConfig
    stamp: Stamp

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the adapter's tensors, read into memory: a mapped file that another pod cuts short would kill the server."""
        try:
            return tensors_of((self.folder / WEIGHTS).read_bytes())
        except (OSError, SafetensorError) as error:
            _refuse(self.name, f"{WEIGHTS} cannot be read: {error}", "ask again, or train the run again")


class PromotedRuns:
    """The runs beside a server's own, and the adapters of those that were asked last. Its methods read the volume: call them in a thread."""

    def __init__(self, own: Path, base: torch.nn.Module, phase: SftPhase | AdaptersPhase, model: Any) -> None:
        """`own` is the run that the server serves, `base` the model its adapters are for, `model` the one that PEFT adds them to."""
        self._own, self._runs, self._phase, self._model = own, own.resolve().parent, phase, model
        self._max_rank = served_rank(phase.adapter_rank)
        self._loaded: OrderedDict[str, tuple[Stamp, str]] = OrderedDict()  # the one asked longest ago first
        self._numbers = count()
        self._linear = {
            name: (part.in_features, part.out_features)
            for name, part in base.named_modules()
            if isinstance(part, torch.nn.Linear)
        }
        self._known: dict[str, PromotedRun] = {}

    def names(self) -> list[str]:
        """Return the runs that may be asked, in the order of their names."""
        names = []
        for folder in sorted(self._runs.glob("*/")):
            with suppress(ApiError):
                names.append(self.find(folder.name).name)
        return names

    def find(self, name: str) -> PromotedRun:
        """Return the run `name`; raises ApiError: 404 where there is none, 409 where its gate did not promote it, 422 where its
        adapter does not fit this server.
        """
        folder = self._runs / name if len(name) <= 253 and NAME.fullmatch(name) else None
        listed = "ask one that GET /v1/models lists"
        try:
            if folder and (folder / "phase.json").is_file():
                return self._checked(name, folder)
        except UserError as error:
            _refuse(name, str(error), listed)
        except (OSError, RuntimeError) as error:  # not for our user to read; links in a circle; JSON nested without end
            _refuse(name, f"it cannot be read ({error})", listed)
        shown = name if len(name) <= MAX_SHOWN else f"{name[:MAX_SHOWN]}..."
        message = (
            f"model {shown!r} does not exist; this server has what GET /v1/models lists: base, what its own run made, and the other "
            "runs on its volume that their gate promoted"
        )
        raise ApiError(404, message, param="model", code="model_not_found")

    def _checked(self, name: str, folder: Path) -> PromotedRun:
        for path in READ:
            if _real(folder / path) != self._runs / name / path:
                _refuse(name, f"{path} is a link to somewhere else", "copy the run itself")
        _promoted(name, folder)
        stamp = _stamp(name, folder)
        known = self._known.get(name)
        if known is None or known.stamp != stamp:
            self._same_base(name, folder)
            config = self._config(name, folder)
            _fits(name, folder / WEIGHTS, self._shapes(name, config))
            known = PromotedRun(name, folder, self._prompted(name, folder), config, stamp)
            self._known[name] = known
        return known

    def _same_base(self, name: str, folder: Path) -> None:
        ours, theirs = (_base(run) for run in (self._own, folder))
        if ours != theirs:
            remedy = "ask a server of that base, such as its own release's"
            _refuse(name, f"its base is {_named(theirs)}, this server's {_named(ours)}", remedy)

    def _prompted(self, name: str, folder: Path) -> ChatPhase:
        """Return the run's phase, with its system prompt; the template is the base's, with this server's date."""
        phase = load_values([folder / "phase.json"]).phase
        date = self._phase.model.chat_template_date
        if not isinstance(phase, ChatPhase) or not phase.adapter_rank:
            _refuse(name, "phase.json is not of a chat model with lora.rank", "ask its own release's server")
        if phase.model.chat_template_date != date:
            text = f"its phase.model.chat_template_date is {phase.model.chat_template_date}, this server's {date}"
            _refuse(name, text, "ask its own release's server")
        return phase

    def _config(self, name: str, folder: Path) -> LoraConfig:
        """Return the adapter's settings, made of those that we know and nothing else of the file."""
        settings = files.read_json(folder / SETTINGS)
        rank = settings.get("r") if isinstance(settings, dict) else None
        if not isinstance(rank, int) or settings.get("peft_type") != "LORA":
            _refuse(name, f"{SETTINGS} is not of a LoRA adapter of PEFT", RETRAIN)
        if rank > self._max_rank:
            remedy = f"serve a run of phase.lora.rank {rank} or more, whose server takes it, or train with a lower rank"
            _refuse(name, f"its adapter is of rank {rank}, this server takes at most {self._max_rank}", remedy)
        for key, least in (("target_modules", 1), ("layers_pattern", 0)):
            names = (
                settings.get(key) or []
            )  # PEFT would read a text as a regular expression, in which a request can be lost
            plain = isinstance(names, list) and all(isinstance(part, str) and LAYER.fullmatch(part) for part in names)
            if not plain or len(names) < least:
                _refuse(name, f"{SETTINGS}: {key} is {settings.get(key)!r}, no list of names of layers", RETRAIN)
        usual = LoraConfig().to_dict()
        for key, value in settings.items():
            if key not in (*USED, *UNUSED) and value and value != usual.get(key):
                _refuse(name, f"{SETTINGS}: {key} is {value!r}; this server takes plain LoRA", "train it without")
        try:
            return LoraConfig(
                task_type="CAUSAL_LM",
                inference_mode=True,
                init_lora_weights=False,
                **{key: settings[key] for key in USED if key in settings},
            )
        except (TypeError, ValueError) as error:
            _refuse(name, f"{SETTINGS}: {error}", RETRAIN)

    def _shapes(self, name: str, config: LoraConfig) -> dict[str, tuple[int, int]]:
        """Return the shapes of all tensors that an adapter with these settings has, by their names."""
        shapes = {}
        for layer, (into, out) in self._linear.items():
            if check_target_module_exists(config, layer):
                shapes[f"{PREFIX}{layer}.lora_A.weight"] = (config.r, into)
                shapes[f"{PREFIX}{layer}.lora_B.weight"] = (out, config.r)
        if not shapes:
            _refuse(name, f"{SETTINGS}: target_modules names no linear layer of this base", RETRAIN)
        return shapes

    def select(self, run: PromotedRun) -> None:
        """Let the model answer with the adapter of `run`, loaded unless it is there as it is on the volume now.

        Not thread-safe: whoever calls it holds the model's lock.
        """
        stamp, adapter = self._loaded.get(run.name, (None, ""))
        if stamp != run.stamp:
            weights = run.weights()
            if stamp is not None:
                self._drop(run.name)
            while len(self._loaded) >= self._phase.serve.max_adapters:
                self._drop(next(iter(self._loaded)))
            adapter = self._add(run, weights)
        self._loaded.move_to_end(run.name)
        self._model.set_adapter(adapter)

    def _add(self, run: PromotedRun, weights: dict[str, Any]) -> str:
        adapter = f"run{next(self._numbers)}"  # a module's name has no dot, a run's may
        # On no device first, so that its tensors become the model's instead of a copy.
        self._model.add_adapter(adapter, run.config, low_cpu_mem_usage=True, autocast_adapter_dtype=False)
        set_peft_model_state_dict(self._model, weights, adapter_name=adapter, low_cpu_mem_usage=True)
        self._model.eval()
        self._loaded[run.name] = run.stamp, adapter
        return adapter

    def _drop(self, name: str) -> None:
        self._model.delete_adapter(self._loaded.pop(name)[1])


def _refuse(name: str, what: str, remedy: str, status: int = 422, code: str = "adapter_refused") -> NoReturn:
    raise ApiError(status, f"run {name}: {what}; {remedy}", param="model", code=code)


def _real(path: Path) -> Path:
    """Return the path without links, of a file that may be missing; raises OSError for links in a circle.

    Path.resolve() raises RuntimeError for a circle until Python 3.12, and returns the path as it is from 3.13 on.
    """
    try:
        return Path(os.path.realpath(path, strict=True))
    except FileNotFoundError:
        return path.resolve()


def _promoted(name: str, folder: Path) -> None:
    unfit = 409, "run_not_promoted"
    if not (folder / "gate.json").is_file():
        _refuse(name, "its gate has not decided yet (no gate.json)", "ask again when it has ended", *unfit)
    gate = read_gate(folder)
    if not gate["promoted"]:
        why = " ".join(map(str, gate["reasons"])).strip().rstrip(".")
        _refuse(name, f"its gate did not promote it: {why}", "train it again, or ask another run", *unfit)


def _stamp(name: str, folder: Path) -> Stamp:
    if not (folder / WEIGHTS).is_file():
        pickled = (folder / "lora_adapter/adapter_model.bin").exists()
        more = ", and adapter_model.bin is not read, as a pickle can run code" if pickled else ""
        _refuse(name, f"{WEIGHTS} is not there{more}", "train it again, or convert the file to safetensors")
    try:
        stats = [(folder / path).stat() for path in READ]
    except OSError as error:
        _refuse(name, f"{Path(error.filename).name} is not there", RETRAIN)
    return tuple((stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats)


def _base(run_dir: Path) -> dict[str, Any]:
    """Return what a run's manifest says of its base, without what may differ between two copies of it."""
    manifest = files.read_json(run_dir / "manifest.json")
    model = manifest.get("model") if isinstance(manifest, dict) else None
    if not isinstance(model, dict) or "source" not in model:
        raise UserError(f"{run_dir / 'manifest.json'}: names no model; train the run again")
    return {key: model[key] for key in ("source", "sha256") if key in model}


def _named(model: dict[str, Any]) -> str:
    return f"{model['source']} (sha256 {str(model.get('sha256', 'unknown'))[:12]})"


def _fits(name: str, path: Path, wanted: dict[str, tuple[int, int]]) -> None:
    """Refuse a file that is cut short, or has not exactly the tensors `wanted`; reads its header only."""
    try:
        with safe_open(path, "pt") as opened:
            shapes = {key: tuple(opened.get_slice(key).get_shape()) for key in opened.keys()}  # noqa: SIM118
            kinds = {opened.get_slice(key).get_dtype() for key in shapes}
    except (OSError, SafetensorError) as error:
        _refuse(name, f"{WEIGHTS} is half written or no safetensors file ({error})", RETRAIN)
    if odd := sorted(shapes.keys() - wanted):
        _refuse(name, f"{WEIGHTS} has a tensor that this base's adapters lack, {odd[0]}", RETRAIN)
    if lost := sorted(wanted.keys() - shapes):
        _refuse(name, f"{WEIGHTS} lacks {len(lost)} tensors, such as {lost[0]}", RETRAIN)
    for key, shape in shapes.items():
        if shape != wanted[key]:
            _refuse(name, f"{WEIGHTS}: {key} is of shape {shape}, this base needs {wanted[key]}", RETRAIN)
    if odd_kinds := sorted(kinds - {"F32", "BF16", "F16"}):
        _refuse(name, f"{WEIGHTS} holds numbers of type {odd_kinds[0]}", "save it as float32, bfloat16 or float16")
