"""What do batches save the chat server? The same questions in batches against one after another, in one run.

PYTHONPATH=training/src python bench/answer_batches.py --model DIR [--batch 8] [--questions 24] [--rounds 2]
(needs the packages of the trainer image; DIR is the SmolLM2-135M-Instruct folder written by `trainlab fetch`)
Greedy answers of the local survival phase's base model to its held-out questions, by the server's own code, CPU time of one
thread; a ratio is the median over the rounds. Exits with 1 when batches are not ENOUGH times as fast, or more than one answer in
ten differs from the one given alone: float32 sums in another order turn a close choice now and then.
"""

import statistics
import sys
import threading
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import outcome
import torch
import transformers
from trainlab.config import SftPhase
from trainlab.config.loading import load_values
from trainlab.data.chat_rows import load_heldout
from trainlab.models import chat
from trainlab.run.manifest import cpu_model
from trainlab.serve.generation import Options, Outcome, Row, generate

ENOUGH, TURNED = 2.5, 0.1
VALUES = [Path("values/survival.yaml"), Path("values/local/survival.yaml")]


class Answer:
    """The text and the end of one row."""

    def __init__(self, prompt: Sequence[int], tokens: int) -> None:
        self.text, self.outcome = "", Outcome("stop", 0)
        self.row = Row(prompt, Options(tokens), self._emit, self._end, threading.Event())

    def _emit(self, text: str) -> None:
        self.text += text

    def _end(self, outcome: Outcome) -> None:
        self.outcome = outcome


def measured(
    model: Any, tokenizer: Any, prompts: Sequence[list[int]], tokens: int, batch: int
) -> tuple[float, list[Answer]]:
    """Return (CPU seconds, answers) of `prompts` in batches of `batch`."""
    answers = [Answer(prompt, tokens) for prompt in prompts]
    began = time.process_time()
    for start in range(0, len(answers), batch):
        generate(model, tokenizer, [each.row for each in answers[start : start + batch]])
    return time.process_time() - began, answers


def main() -> int:
    """Measure, compare, print; return the exit code."""
    parser = outcome.parser(__doc__)
    parser.add_argument("--model", type=Path, required=True, metavar="DIR", help="folder of the base model")
    parser.add_argument("--batch", type=int, default=8, help="requests of a batch (default %(default)s)")
    parser.add_argument("--questions", type=int, default=24, help="questions (default %(default)s)")
    parser.add_argument("--tokens", type=int, default=32, help="longest answer (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=2, help="rounds (default %(default)s)")
    args = parser.parse_args()
    if args.smoke:
        args.questions, args.tokens, args.rounds, args.batch = 5, 6, 1, 3
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    phase = load_values(VALUES).phase
    assert isinstance(phase, SftPhase)
    rows = load_heldout(phase.data.model_copy(update={"heldout_rows": None}), Path("data/survival"))
    model, tokenizer = chat.load_base(args.model, phase)
    prompts = [chat.prompt_ids(tokenizer, phase, row["question"]) for row in rows[: args.questions]]
    measured(model, tokenizer, prompts[:1], 2, 1)  # whatever the first answer costs is not counted
    ratios, seconds = [], dict[str, float]()
    for _ in range(args.rounds):
        alone, singly = measured(model, tokenizer, prompts, args.tokens, 1)
        together, batched = measured(model, tokenizer, prompts, args.tokens, args.batch)
        ratios.append(alone / together)
        seconds = {"one_after_another": round(alone, 2), "batches": round(together, 2)}
    pairs = list(zip(singly, batched, strict=True))
    equal = sum((pair.text, pair.outcome) == (other.text, other.outcome) for pair, other in pairs)
    result = {
        "cpu_seconds": seconds,
        "ratio": round(statistics.median(ratios), 2),
        "answers": len(pairs),
        "equal_answers": equal,
        "tokens": sum(each.outcome.tokens for each in batched),
        "batch": args.batch,
        "versions": {name: version(name) for name in ("torch", "transformers")},
        "cpu": cpu_model(),
    }
    floors = {"times as fast as one after another": (statistics.median(ratios), ENOUGH)}
    return outcome.end(args, result, equal=equal >= (1 - TURNED) * len(pairs), at_least=floors)


if __name__ == "__main__":
    sys.exit(main())
