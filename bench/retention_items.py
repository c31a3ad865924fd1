"""Which general questions does the base model answer? The ones that it does make data/survival/retention.jsonl.

PYTHONPATH=training/src python bench/retention_items.py --model DIR [--out FILE] [CANDIDATES]
(needs the packages of the trainer image; DIR is the SmolLM2-135M-Instruct folder written by `trainlab fetch`)
Greedy answers to the questions of CANDIDATES (data/survival/retention.jsonl): to all with the system prompt of the first of the local
phases in PHASES, then to those that were answered with the prompt of the next. Prints what was not answered, and the share with
each prompt. `--out` writes the rows that were answered with every prompt, numbered anew. Exits with 1 when there are none.
"""

import argparse
import json
import sys
from pathlib import Path

from trainlab.config import SftPhase
from trainlab.config.loading import load_values
from trainlab.evaluation import answer_score, facts
from trainlab.models import chat

PHASES = ("quick", "survival")
BATCH, TOKENS = 32, 16
"""A fact that comes later than TOKENS is no answer to a short question."""


def local(name: str) -> SftPhase:
    """Return a phase in its local size, with answers of TOKENS in batches of BATCH."""
    phase = load_values([Path(f"values/{name}.yaml"), Path(f"values/local/{name}.yaml")]).phase
    assert isinstance(phase, SftPhase)
    settings = {"batch_size": BATCH, "max_new_tokens": TOKENS}
    return phase.model_copy(update={"evaluate": phase.evaluate.model_copy(update=settings)})


def main() -> int:
    """Ask, compare, print; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("candidates", nargs="?", type=Path, default=Path("data/survival/retention.jsonl"))
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows = [json.loads(line) for line in arguments.candidates.read_text(encoding="ascii").splitlines()]
    for phase in map(local, PHASES):
        model, tokenizer = chat.load_base(arguments.model, phase)
        answers = answer_score.answers(model, tokenizer, phase, [row["question"] for row in rows])
        right = [facts.recall(answer["text"], row["facts"]) == 1 for row, answer in zip(rows, answers, strict=True)]
        for row, answer, is_right in zip(rows, answers, right, strict=True):
            if not is_right:
                print(f"{phase.name}: {row['id']}: {row['question']} -> {answer['text']!r}")
        print(f"{phase.name}: {sum(right)} of {len(rows)} answered")
        rows = [row for row, is_right in zip(rows, right, strict=True) if is_right]
        if not rows:
            return 1
    if arguments.out:
        kept = [{**row, "id": f"keep-{number:03d}"} for number, row in enumerate(rows, start=1)]
        arguments.out.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main())
