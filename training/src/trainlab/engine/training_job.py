"""What a language-model recipe trains with, the same on every rank."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from trainlab.config import LanguagePhase
from trainlab.progress import Progress

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

P = TypeVar("P", bound=LanguagePhase, covariant=True)
R = TypeVar("R", covariant=True)


@dataclass
class TrainingJob(Generic[P, R]):
    """The phase, the loaded base model and the rows: list[TrainRow], or blocks of tokens."""

    phase: P
    run_dir: Path
    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"
    rows: R
    progress: Progress
