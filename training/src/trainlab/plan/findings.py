"""One finding of the planner; made by checks, printed by table and by the playbooks."""

from dataclasses import dataclass
from typing import Literal

# What to change in a values file, by finding code.
KEYS = {
    "unknown-model": "phase.model.source",
    "context": "phase.model.max_length",
    "memory": "phase.train.batch_size, phase.model.max_length, phase.resources",
    "memory-tight": "phase.train.batch_size, phase.model.max_length",
    "logits": "phase.train.batch_size",
    "unknown-data": "phase.data.train_rows",
    "batch": "phase.train.batch_size",
    "warmup": "phase.train.warmup_fraction",
    "tied-head": "phase.unfreeze.tie_word_embeddings",
    "frozen-recompute": "phase.stage.gradient_checkpointing",
    "network": "phase.train.gradient_accumulation, phase.resources.nodes",
    "access-mode": "site.storage.NAME.accessMode",
    "models-volume": "site.storage.models.size",
    "runs-volume": "site.storage.runs.size",
    "data-volume": "site.storage.data.size",
    "volume-tight": "site.storage.NAME.size",
    "engine-memory": "phase.serve.gpus, phase.model.max_length",
    "server-memory": "phase.serve.memory",
    "bf16": "phase.model.dtype",
    "rounding": "phase.model.saved_dtype, phase.train.learning_rate",
    "lora-rank": "phase.lora.rank",
    "few-tokens": "phase.data.train_rows",
}


@dataclass(frozen=True)
class Finding:
    """A reason to stop (refuse) or to reconsider (warn); `code` is stable, `text` has numbers and remedy."""

    level: Literal["refuse", "warn"]
    code: str
    text: str

    @property
    def key(self) -> str:
        """The keys of a values file that the remedy changes, empty if there are none."""
        return KEYS.get(self.code, "")

    @property
    def line(self) -> str:
        """The finding in one line, the same from the CLI and from the playbooks."""
        mark = "REFUSED" if self.level == "refuse" else "warning"
        return f"{mark} [{self.code}] {self.text}" + (f" ({self.key})" if self.key else "")


def refuse(code: str, text: str) -> Finding:
    """Return a finding that makes `trainlab plan` exit 1."""
    return Finding("refuse", code, text)


def warn(code: str, text: str) -> Finding:
    """Return a finding that is only printed."""
    return Finding("warn", code, text)
