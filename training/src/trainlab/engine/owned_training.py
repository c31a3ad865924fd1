"""The training loop of recipe adapters: every step takes rows of every owner; checkpoints, resume and SIGTERM as elsewhere.

Ranks share out the owners, who share no trained weight: nothing but the outputs of the frozen layers is exchanged.
"""

import itertools
import math
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch.nn.functional import cross_entropy

from trainlab import files
from trainlab.config import AdaptersPhase
from trainlab.engine import checkpoints, dist
from trainlab.engine.activation_cache import ActivationCache
from trainlab.engine.answer_loss import only
from trainlab.engine.owned_lora import OwnedLora
from trainlab.engine.stopping import Stop, Stopped
from trainlab.errors import UserError
from trainlab.plan import volumes
from trainlab.progress import Eta, Numbers, Progress

ROWS_AT_ONCE = {"cpu": 32, "cuda": 512}
"""Device -> rows of one pass forward and back: what it holds in memory, as gradients add up over a step."""

PLAIN_TOKENS = 256
"""Rows up to which attention is plain on a CPU."""


@dataclass(frozen=True)
class OwnedRow:
    """One row as tokens; the answer begins at `prompt`. `kept`: the adapter keeps to what the base predicts there."""

    owner: int
    ids: tuple[int, ...]
    prompt: int
    kept: bool = False

    @property
    def answer(self) -> int:
        """Tokens that are learned."""
        return len(self.ids) - self.prompt


class OwnedTrainer:
    """Trains the adapters of this rank's owners; `rows`: for each owner, in the order of their numbers, one list a pass."""

    def __init__(
        self,
        model: Any,
        pad: int,
        phase: AdaptersPhase,
        adapters: OwnedLora,
        rows: Sequence[Sequence[Sequence[OwnedRow]]],
    ) -> None:
        self._model, self._pad, self._phase, self._adapters, self._own = model, pad, phase, adapters, rows
        self._cache: ActivationCache | None = None
        self._at_once = ROWS_AT_ONCE[model.device.type]
        self._base: dict[tuple[int, ...], torch.Tensor] = {}
        train = phase.train
        own = train.epochs * max((len(passed) for own in rows for passed in own), default=0) / train.batch_size
        self.steps = max(1, round(max(dist.gather(own))))
        self.rows = sum(dist.gather(sum(len(own[0]) for own in rows if own)))  # of one pass
        self.history: list[dict[str, Any]] = []
        betas = (
            0.9 if train.adam_beta1 is None else train.adam_beta1,
            0.999 if train.adam_beta2 is None else train.adam_beta2,
        )
        self._optimizer = torch.optim.AdamW(
            adapters.parameters(), lr=train.learning_rate, betas=betas, weight_decay=train.weight_decay
        )

    def prepare(self, progress: Progress) -> None:
        """Run the frozen layers once over all texts, and the others once over those whose answers are kept."""
        unique = {row.ids: row for own in self._own for passed in own for row in passed}
        if layers := self._phase.lora.layers:
            self._cache = ActivationCache(self._model, layers, self._pad)
            texts = sorted({ids for part in dist.gather(list(unique)) for ids in part})
            with progress.step(f"running the frozen layers once over {len(texts)} texts"):
                self._cache.fill(map(list, texts), self._at_once, nullcontext, progress.status)
        kept = sorted((row for row in unique.values() if row.kept), key=lambda row: len(row.ids))
        head = self._model.get_output_embeddings()
        for part in _parts(kept, self._at_once):
            states: list[torch.Tensor] = []
            hook = head.register_forward_hook(lambda __, args, logits, into=states: into.append(args[0]))
            with torch.no_grad(), self._adapters.rows(None):
                predicted = self._logits(part)
            hook.remove()
            with torch.no_grad():
                if not torch.allclose(self._as_model(states[0]).float(), predicted.float(), rtol=0.05, atol=0.05):
                    raise UserError(
                        f"phase.model.source is {self._phase.model.source}: recipe adapters does not know how this model makes its predictions "
                        "of what its head returns, and could not keep what the base says; choose a model of another family"
                    )
            for row, own in zip(part, states[0].split([row.answer for row in part]), strict=True):
                self._base[row.ids] = own.clone()

    def fit(self, run_dir: Path, names: Sequence[str], progress: Progress) -> int:
        """Train from the newest complete checkpoint to the end; return the step that it began at. names: of this rank's owners.

        Rank 0 writes training_history.json after each step, of all ranks: [{step, learning_rate, loss, owners: {name: loss}}].
        """
        folder = run_dir / "checkpoints"
        train = self._phase.train
        order = [self.order(name, own) for name, own in zip(names, self._own, strict=True)]
        first = self._resume(folder, names, progress)
        trained = sum(weight.numel() for weight in self._adapters.parameters())
        clock = checkpoints.Clock(self.steps, train.checkpoints, volumes.TRAINED_BYTES * trained * dist.world_size())
        eta, began, tokens = Eta(first), time.monotonic(), 0
        progress.gpu_use()
        progress.say(f"training {len(names)} adapters of this rank from step {first} to {self.steps}")
        self._model.train()
        longest = max((len(row.ids) for own in order for row in own), default=0)
        with Stop() as stop, _plain_attention(self._model, longest):
            for step in range(first, self.steps):
                rate = train.learning_rate * _schedule(step, self.steps, train.warmup_fraction)
                for group in self._optimizer.param_groups:
                    group["lr"] = rate
                batch = [row for own in order for row in own[step * train.batch_size : (step + 1) * train.batch_size]]
                losses = dict(zip(names, self._step(batch), strict=True))
                tokens += sum(len(row.ids) for row in batch)
                every = {name: loss for part in dist.gather(losses) for name, loss in part.items()}
                mean = sum(every.values()) / len(every)
                entry = {"step": step + 1, "learning_rate": rate, "loss": mean, **progress.gpu_use()}
                self.history.append({**entry, "owners": every})
                progress.log(step + 1, entry)
                if dist.is_main():
                    files.write_json(run_dir / "training_history.json", self.history)
                numbers = {
                    "loss": mean,
                    "learning_rate": rate,
                    "tokens_per_second": tokens / (time.monotonic() - began),
                }
                progress.at(Numbers(step + 1, self.steps, eta.left(step + 1, self.steps), train=numbers))
                stopping = stop.due(step + 1)
                if clock.due(step + 1) or stopping:
                    self._save(folder, step + 1, names)
                    clock.saved()
                if stopping:
                    raise Stopped(step + 1)
            if first < self.steps:
                self._save(
                    folder, self.steps, names
                )  # asking the adapters may take longer: a run that is lost then asks again only
        self._model.eval()
        return first

    def order(self, name: str, passes: Sequence[Sequence[OwnedRow]]) -> list[OwnedRow]:
        """Return the rows of an owner in the order of the steps: each pass shuffled by the seed and the owner's name."""
        chance, order = random.Random(f"{self._phase.seed} {name}"), list[OwnedRow]()
        for rows in itertools.cycle(passes):
            if len(order) >= self.steps * self._phase.train.batch_size:
                return order
            order += chance.sample(rows, len(rows))
        raise ValueError(f"{name} has no rows")

    def _step(self, batch: Sequence[OwnedRow]) -> list[float]:
        """Take one optimizer step; return each owner's loss, the mean over the answer tokens of its rows, in nats.

        A kept row's tokens weigh train.kept_weight.
        """
        weights, counts = (1.0, self._phase.train.kept_weight), [0.0] * len(self._own)
        for row in batch:
            counts[row.owner] += weights[row.kept] * row.answer
        losses = torch.zeros(len(self._own))
        self._optimizer.zero_grad()
        for rows in _parts(sorted(batch, key=lambda row: len(row.ids)), self._at_once):
            part = sorted(rows, key=lambda row: row.kept)
            with self._adapters.rows([row.owner for row in part]):
                logits = self._logits(part)
            owners = torch.tensor([row.owner for row in part for __ in range(row.answer)])
            shares = torch.tensor([weights[row.kept] / counts[row.owner] for row in part for __ in range(row.answer)])
            nats = self._nats(part, logits) * shares.to(logits.device)
            nats.sum().backward()
            losses.index_add_(0, owners, nats.detach().cpu())
        self._adapters.clip(self._phase.train.max_grad_norm)
        self._optimizer.step()
        return [float(loss) for loss in losses]

    def _nats(self, part: Sequence[OwnedRow], logits: torch.Tensor) -> torch.Tensor:
        """Return the cross entropy at each answer position: with the token that is taught, or with what the base predicts.

        Of `part`, rows whose answers are kept come last.
        """
        taught = [token for row in part if not row.kept for token in row.ids[row.prompt :]]
        states = [self._base[row.ids] for row in part if row.kept]
        learned, kept = logits.split([len(taught), len(logits) - len(taught)])
        nats = cross_entropy(
            learned.float(), torch.tensor(taught, dtype=torch.long, device=logits.device), reduction="none"
        )
        if not states:
            return nats
        with torch.no_grad():
            predicted = self._as_model(torch.cat(states)).float().softmax(-1)
        return torch.cat([nats, cross_entropy(kept.float(), predicted, reduction="none")])

    def _as_model(self, states: torch.Tensor) -> torch.Tensor:
        """Return the logits of the model for the inputs of its head, as TRL's fused loss makes them."""
        config, logits = self._model.config.get_text_config(), self._model.get_output_embeddings()(states)
        if scaling := getattr(config, "logits_scaling", None):  # Granite
            logits = logits / scaling
        if scale := getattr(config, "logit_scale", None):  # Cohere
            logits = logits * scale
        if cap := getattr(config, "final_logit_softcapping", None):  # Gemma 2 and later
            logits = cap * torch.tanh(logits / cap)
        return cast(torch.Tensor, logits)

    def _logits(self, rows: Sequence[OwnedRow]) -> torch.Tensor:
        """Return the logits at the positions that predict answers, [positions, vocabulary], row after row."""
        longest, device = max(len(row.ids) for row in rows), self._model.device
        ids = torch.tensor([[*row.ids, *[self._pad] * (longest - len(row.ids))] for row in rows], device=device)
        mask = torch.tensor([[1] * len(row.ids) + [0] * (longest - len(row.ids)) for row in rows], device=device)
        predicting = torch.zeros_like(mask, dtype=torch.bool)
        for place, row in zip(predicting, rows, strict=True):
            place[row.prompt - 1 : len(row.ids) - 1] = True
        inputs = {"input_ids": ids, "attention_mask": mask}
        with only(self._model.get_output_embeddings(), predicting):
            if self._cache is None:
                logits: torch.Tensor = self._model(**inputs, use_cache=False).logits
                return logits
            with self._cache.replacing(inputs):
                return self._model(**inputs, use_cache=False).logits

    def _save(self, root: Path, step: int, names: Sequence[str]) -> None:
        """Write a checkpoint of all ranks, mark it, and remove older ones."""
        folder = root / f"checkpoint-{step}"
        with checkpoints.explained_if_full(root, folder.name):
            folder.mkdir(parents=True, exist_ok=True)
            weights = [weight.detach() for weight in self._adapters.parameters()]
            state: dict[str, Any] = {"names": list(names), "weights": weights}
            state |= {"optimizer": self._optimizer.state_dict(), "history": self.history, "steps": self.steps}
            with files.atomic_write(folder / f"owners-{dist.rank()}.pt") as file:
                torch.save(state, file)
        dist.barrier()
        if dist.is_main():
            checkpoints.mark(folder)
            checkpoints.rotate(root, self._phase.train.keep_checkpoints)

    def _resume(self, root: Path, names: Sequence[str], progress: Progress) -> int:
        """Load the newest complete checkpoint with the same owners on this rank; return its step, 0 without one."""
        folder = checkpoints.last_good_everywhere(root, progress.say)
        path = folder / f"owners-{dist.rank()}.pt" if folder else None
        state: Any = torch.load(path, weights_only=True) if path and path.exists() else None
        if not all(dist.gather(bool(state) and state["names"] == list(names) and state["steps"] == self.steps)):
            if folder:
                progress.say(f"{folder.name} is of another number of ranks or steps: training begins anew")
            return 0
        progress.say(f"resuming from {folder}")
        with torch.no_grad():
            for weight, saved in zip(self._adapters.parameters(), state["weights"], strict=True):
                weight.copy_(saved)
        self._optimizer.load_state_dict(state["optimizer"])
        self.history = state["history"]
        return checkpoints.step(Path(str(folder)))


@contextmanager
def _plain_attention(model: Any, longest: int) -> Iterator[None]:
    """On CPU, let `model` compute the attention of rows of up to `longest` tokens by plain matrix products.

    Of 32 rows in bfloat16, forward and backward, torch 2.13's fused kernel takes 7 times as long at 37 tokens, 2 times at 256; plain
    products keep the scores of all pairs of tokens in memory.
    """
    if model.device.type != "cpu" or longest > PLAIN_TOKENS:
        yield
        return
    fused = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(fused)


def _schedule(step: int, steps: int, warmup: float) -> float:
    """Return the share of the peak rate at a step (from 0): linear warm-up, then a cosine to zero, as transformers'."""
    rising = math.ceil(steps * warmup)
    if step < rising:
        return step / max(1, rising)
    return max(0.0, 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, steps - rising))))


def _parts(rows: Sequence[OwnedRow], size: int) -> Iterator[Sequence[OwnedRow]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
