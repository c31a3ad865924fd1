"""The training of an image classifier from scratch: plain PyTorch with DDP; called by recipes/resnet.py on every rank.

All randomness derives from the seed and the step number, never from the rank: so a resumed run repeats the
uninterrupted one, and two ranks see what one rank sees with twice the accumulation. The best network by validation
accuracy becomes best_model/.
"""

import contextlib
import math
import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as td
from torch import nn

from trainlab import files
from trainlab.config import ResnetPhase
from trainlab.engine import checkpoints, dist
from trainlab.engine.stopping import Stop, Stopped
from trainlab.errors import UserError
from trainlab.models import compute
from trainlab.plan import volumes
from trainlab.progress import Eta, Numbers, Progress
from trainlab.recipes import image_network
from trainlab.recipes.image_data import Images, augment, draws, normalize
from trainlab.recipes.image_network import optimizer, rate, stream

STATE = "state.pt"


@dataclass
class State:
    """What a checkpoint holds besides weights, optimizer and schedule."""

    step: int = 0
    count: int = 0  # of steps since the last entry of the history
    history: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Any] | None = None  # {step, accuracy, loss}
    weights: dict[str, torch.Tensor] = field(default_factory=dict)  # of the best step, on the CPU


def fit(phase: ResnetPhase, run_dir: Path, images: Images, progress: Progress, stop: Stop) -> dict[str, Any]:
    """Train, leave best_model/ and training_history.json; return the summary (seconds, rates, scores, parameters).

    `stop` is entered until the summary is written.
    """
    loop = Loop(phase, run_dir, images, progress)
    first = loop.resume()
    began = time.monotonic()
    loop.run(stop)
    seconds = time.monotonic() - began
    scale = {"mean": list(images.mean), "std": list(images.std)}
    served = {"image_size": phase.vision.image_size, "labels": list(images.classes), **scale, "data": phase.data.source}
    best = image_network.untrained(**loop.shape, seed=phase.seed)
    best.load_state_dict(loop.state.weights)
    saved = [(checkpoints.FINAL, loop.network)] if phase.train.save_final_model else []
    for name, network in (*saved, ("best_model", best)):
        with progress.step(f"saving {name}/"), checkpoints.explained_if_full(loop.folder, name):
            if dist.is_main():
                image_network.save(network, run_dir / name, served)
    if dist.is_main():
        with checkpoints.explained_if_full(loop.folder, "training_history.json"):
            files.write_json(run_dir / "training_history.json", loop.state.history)
    dist.barrier()
    return loop.summary(first, seconds)


class Loop:
    """Network, optimizer and schedule of one run on one rank."""

    def __init__(self, phase: ResnetPhase, run_dir: Path, images: Images, progress: Progress) -> None:
        self.phase, self.images, self.progress, self.state = phase, images, progress, State()
        settings = phase.train
        self.folder, self.shared = run_dir / "checkpoints", dist.world_size() > 1
        self.batch = settings.batch_size * settings.gradient_accumulation * dist.world_size()
        self.per_epoch = len(images.train) // self.batch
        if not self.per_epoch:
            raise UserError(
                f"phase.train.batch_size is {settings.batch_size}: a step takes {self.batch} images across all ranks, the "
                f"training part has {len(images.train)}; lower it"
            )
        self.total = max(1, round(settings.epochs * self.per_epoch))
        self.spacing = math.ceil(self.total / settings.checkpoints)
        self.device, self.dtype = compute.device(), compute.dtype(phase)
        self.shape = {"channels": images.channels, "classes": len(images.classes), "width": phase.vision.width}
        self.network = image_network.untrained(**self.shape, seed=phase.seed).to(self.device)
        for module in self.network.modules():
            if isinstance(module, nn.BatchNorm2d):  # running statistics forget at the same pace per optimizer step
                module.momentum = 1 - (1 - 0.1) ** (1 / settings.gradient_accumulation)
        self.optimizer = optimizer(self.network, phase)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: rate(step, self.total, settings))
        self.model: Any = self.network
        if self.shared:
            ids = [self.device.index] if self.device.type == "cuda" else None
            # Each rank normalizes by its own images; _average merges the running statistics before they are used.
            self.model = nn.parallel.DistributedDataParallel(self.network, device_ids=ids, forward_sync_buffers=False)
        if phase.vision.compile:
            # The default is below a folder named after the user, and a UID without a passwd entry has no name.
            os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(tempfile.gettempdir()) / "torchinductor"))
            self.model = torch.compile(self.model)  # self.network stays plain: no `_orig_mod.` in saved names
        self.data = images.train.to(self.device)  # all of it: CIFAR-10 is 154 MB
        self.sums = torch.zeros(2, device=self.device)  # loss and accuracy since the last entry of the history
        self.latest: dict[str, float] = {}  # means of the last log entry, and of the last validation
        self.validated: dict[str, float] = {}
        self.board: Any = None
        if dist.is_main():
            from torch.utils.tensorboard import SummaryWriter

            self.board = SummaryWriter(str(run_dir / "tensorboard"))

    def run(self, stop: Stop) -> None:
        """Take all remaining steps; where it is told to stop, which `stop` knows, leave a checkpoint and raise Stopped."""
        progress, eta, every = self.progress, Eta(self.state.step), max(1, self.total // 100)
        progress.gpu_use()
        progress.say(f"training from step {self.state.step} to {self.total}")
        size = volumes.image_checkpoint(image_network.parameters(self.network), self.phase.vision.optimizer)
        clock = checkpoints.Clock(self.total, self.phase.train.checkpoints, size)
        self.network.train()
        try:
            while self.state.step < self.total:
                self.sums += self._step(self.state.step)
                self.state.step, self.state.count = self.state.step + 1, self.state.count + 1
                step = self.state.step
                due = step % self.spacing == 0 or step == self.total  # as transformers has it for shares of the steps
                if step % every == 0 or due:
                    self._log()
                left, epochs = eta.left(step, self.total), self.total / self.per_epoch
                progress.at(Numbers(step, self.total, left, step / self.per_epoch, epochs, self.latest, self.validated))
                if due:
                    self._validate()
                stopped = stop.due(step) and step < self.total  # then the result is saved at once
                if clock.due(step) or stopped:
                    self._save()
                    clock.saved()
                if stopped:
                    raise Stopped(step)
        finally:
            if self.board:
                self.board.close()

    def _step(self, step: int) -> torch.Tensor:
        """Take one optimizer step; return this rank's (loss, accuracy) as means over its images."""
        train, vision = self.phase.train, self.phase.vision
        epoch, place = divmod(step, self.per_epoch)
        order = torch.randperm(len(self.data), generator=stream(self.phase.seed, "order", epoch))
        index = order[place * self.batch : (place + 1) * self.batch]
        shifts, flags = draws(self.batch, vision.crop_padding, vision.flip, stream(self.phase.seed, "augment", step))
        means = torch.zeros(2, device=self.device)
        for part in range(train.gradient_accumulation):
            start = (part * dist.world_size() + dist.rank()) * train.batch_size
            rows = slice(start, start + train.batch_size)
            chosen = index[rows].to(self.device)
            labels = self.data.labels[chosen]
            pixels = augment(self.data.images[chosen], vision.crop_padding, shifts[rows], flags[rows])
            inputs = normalize(pixels, self.images.mean, self.images.std)
            last = part == train.gradient_accumulation - 1
            wait = contextlib.nullcontext() if last or not self.shared else self.model.no_sync()
            with wait:
                with torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32):
                    logits = self.model(inputs)
                    loss = nn.functional.cross_entropy(logits.float(), labels, label_smoothing=vision.label_smoothing)
                (loss / train.gradient_accumulation).backward()
            right = (logits.detach().argmax(dim=1) == labels).float().mean()
            means += torch.stack([loss.detach(), right]) / train.gradient_accumulation
        nn.utils.clip_grad_norm_(self.network.parameters(), train.max_grad_norm)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad(set_to_none=True)
        return means

    def _log(self) -> None:
        """Log the means since the last entry, and start anew."""
        total, count = self.sums.clone(), self.state.count
        self.sums, self.state.count = torch.zeros_like(self.sums), 0
        if self.shared:
            td.all_reduce(total)
        loss, accuracy = (total / count / dist.world_size()).tolist()
        entry = {"step": self.state.step, "epoch": self.state.step / self.per_epoch, "loss": loss, "accuracy": accuracy}
        self.latest = {"loss": loss, "accuracy": accuracy}
        self._note({**entry, "learning_rate": self.schedule.get_last_lr()[0], **self.progress.gpu_use()})

    def _validate(self) -> None:
        """Score the validation part; keep the weights if it is the best so far (without such a part: the newest)."""
        self._average()
        step, images = self.state.step, self.images
        scored: dict[str, Any] = {"step": step, "accuracy": None, "loss": None}
        if len(images.validation):
            scores = image_network.score(self.network, images.validation, images, self.phase)
            scored |= {"accuracy": scores["accuracy"], "loss": scores["loss"]}
            self.validated = {"loss": scores["loss"], "accuracy": scores["accuracy"]}
            self._note({"step": step, "eval_accuracy": scores["accuracy"], "eval_loss": scores["loss"]})
            text = f"validation accuracy {scores['accuracy']:.1%}, loss {scores['loss']:.3f}"
            self.progress.say(f"step {step}/{self.total} {text}")
        if better(scored, self.state.best):
            self.state.best = scored
            self.state.weights = {k: v.detach().cpu().clone() for k, v in self.network.state_dict().items()}

    def _average(self) -> None:
        """Give all ranks the mean of their running statistics."""
        if self.shared:
            for buffer in self.network.buffers():
                if buffer.is_floating_point():
                    td.all_reduce(buffer)
                    buffer /= dist.world_size()

    def _note(self, entry: dict[str, Any]) -> None:
        self.state.history.append(entry)
        self.progress.log(entry["step"], entry)
        if self.board:
            for name, value in entry.items():
                if name not in ("step", "epoch"):
                    self.board.add_scalar(name, value, entry["step"])

    def _save(self) -> None:
        """Write a checkpoint from rank 0: complete, marked, then delete the old ones."""
        buffers = {name: buffer.cpu() for name, buffer in self.network.named_buffers()}
        own = dist.gather({"random": torch.get_rng_state(), "sums": self.sums.cpu(), "buffers": buffers})
        if dist.is_main():
            content = {
                **vars(self.state),
                "model": self.network.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "schedule": self.schedule.state_dict(),
                "ranks": own,
            }
            folder = self.folder / f"checkpoint-{self.state.step}"
            with checkpoints.explained_if_full(self.folder, folder.name):
                folder.mkdir(parents=True, exist_ok=True)
                torch.save(content, folder / STATE)
                checkpoints.mark(folder)
                checkpoints.rotate(self.folder, self.phase.train.keep_checkpoints)
        dist.barrier()

    def resume(self) -> int:
        """Resume from the newest complete checkpoint, if there is one; return its step."""
        path = checkpoints.last_good_everywhere(self.folder, self.progress.say)
        if path is None:
            return 0
        self.progress.say(f"resuming from {path}")
        content = torch.load(path / STATE, map_location="cpu", weights_only=True)
        self.network.load_state_dict(content.pop("model"))
        self.optimizer.load_state_dict(content.pop("optimizer"))
        self.schedule.load_state_dict(content.pop("schedule"))
        ranks = content.pop("ranks")
        if len(ranks) == dist.world_size():
            own = ranks[dist.rank()]
            torch.set_rng_state(own["random"])
            self.network.load_state_dict(own["buffers"], strict=False)
            self.sums = own["sums"].to(self.device)
        self.state = State(**content)
        return self.state.step

    def summary(self, first: int, seconds: float) -> dict[str, Any]:
        """Return training_summary.json without the hardware."""
        history, best, train = self.state.history, self.state.best or {}, self.phase.train
        losses = [entry["loss"] for entry in history if "loss" in entry]
        count = image_network.parameters(self.network)
        return {
            "recipe": self.phase.recipe,
            "parameters": {"trainable": count, "total": count, "share": 1.0},
            "rows": len(self.images.train),
            "validation_rows": len(self.images.validation),
            "test_rows": len(self.images.test),
            "world_size": dist.world_size(),
            "effective_batch": self.batch,
            "epochs": train.epochs,
            "steps": self.state.step,
            "resumed_from_step": first,
            "seconds": round(seconds, 1),
            "step_parts": dist.step_parts(self.model),
            "samples_per_second": round((self.state.step - first) * self.batch / seconds, 1) if seconds else None,
            "first_loss": losses[0] if losses else None,
            "last_loss": losses[-1] if losses else None,
            "validation_loss": best.get("loss"),
            "validation_accuracy": best.get("accuracy"),
            "best_step": best.get("step"),
            "final_model": bool(train.save_final_model),
            "dtype": str(self.dtype).removeprefix("torch."),
        }


def better(new: dict[str, Any], old: dict[str, Any] | None) -> bool:
    """True when `new` has the higher validation accuracy, or the same with less loss; unmeasured, the newer wins."""
    if old is None or new["accuracy"] is None or old["accuracy"] is None:
        return True
    return bool((new["accuracy"], -new["loss"]) > (old["accuracy"], -old["loss"]))
