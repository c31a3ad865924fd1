"""Score a model on the tasks of `evaluate.tasks` with the harness itself; the ranks share the items. Used by recipes/language.py.

Prompts are the tasks' own, without chat template or system prompt: the same at every stage, so that scores can be compared.
"""

import logging
import math
import os
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from trainlab.config import LanguagePhase
from trainlab.engine import dist
from trainlab.errors import UserError
from trainlab.evaluation.tasks import KEY, Benchmarks, load

DEFAULT_TOKENS = 256
"""What the harness lets a task generate that does not say how much."""


def score(model: Any, tokenizer: Any, phase: LanguagePhase, models: Path) -> dict[str, Any]:
    """Return {harness, seconds, data, results}; every rank must call it with its whole model and gets the result.

    results: task -> {items, of, few_shot, version, cut, metrics}, where `items` of `of` were asked, and `cut` requests lost
    their beginning because they exceed the model's context. metrics: "metric,filter" -> {value, stderr (None where
    the harness has none), higher_is_better, values: one number per item in order, None where the value is not their
    mean}. Raises UserError.
    """
    began = time.monotonic()
    benchmarks = load(phase, models)
    limit = phase.evaluate.task_limit
    fewest = min(min(len(task.eval_docs), limit or len(task.eval_docs)) for task in benchmarks.tasks.values())
    # The harness needs an item of each task for each rank. Else every rank scores all: those that waited would take rank 0 for lost.
    ranks = dist.world_size() if fewest >= dist.world_size() else 1
    own = _run(model, tokenizer, phase, benchmarks, ranks)
    results: dict[str, Any] = dist.gather(own if dist.is_main() else None)[0] or {}
    return {
        "harness": version("lm_eval"),
        "seconds": round(max(dist.gather(time.monotonic() - began)), 2),
        "data": benchmarks.data,
        "results": results,
    }


def _run(model: Any, tokenizer: Any, phase: LanguagePhase, benchmarks: Benchmarks, ranks: int) -> dict[str, Any] | None:
    """Return the results on rank 0, None on the others."""
    from lm_eval.evaluator import evaluate

    wrapped = _wrap(model, tokenizer, phase, ranks)
    _fits(benchmarks, wrapped.max_length)
    os.environ.setdefault("DISABLE_MULTIPROC", "1")  # its bootstrap would fork a process holding a GPU
    output: Any = evaluate(
        wrapped,
        {"tasks": benchmarks.tasks, "groups": benchmarks.groups},
        limit=phase.evaluate.task_limit,
        bootstrap_iters=phase.evaluate.bootstrap_samples,
    )
    cut = {name: _cut(task, wrapped) for name, task in benchmarks.tasks.items()}
    if ranks > 1:
        cut = {name: sum(part[name] for part in dist.gather(cut)) for name in cut}
    return None if output is None else {name: _result(name, output, cut.get(name, 0)) for name in benchmarks.reported}


def _wrap(model: Any, tokenizer: Any, phase: LanguagePhase, ranks: int) -> Any:
    """Wrap an already loaded model for the harness, with our collectives in place of Accelerate's."""
    from lm_eval.models.huggingface import HFLM

    logging.getLogger("lm_eval").setLevel(logging.ERROR)  # it warns about every model it did not load itself
    wrapped: Any = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=phase.evaluate.batch_size)
    for kind in ("loglikelihood", "loglikelihood_rolling", "generate_until"):
        setattr(wrapped, kind, partial(getattr(wrapped, kind), disable_tqdm=True))
    if ranks > 1:
        wrapped._rank, wrapped._world_size = dist.rank(), ranks
        wrapped.all_gather = lambda tensor: torch.cat([part.reshape(-1) for part in dist.gather(tensor.cpu())])
        wrapped.gather_object = lambda value, dst=0: dist.gather(value)
        wrapped.barrier = dist.barrier
    return wrapped


def _fits(benchmarks: Benchmarks, context: int) -> None:
    for name, task in benchmarks.tasks.items():
        wanted = int((task.get_config("generation_kwargs") or {}).get("max_gen_toks", DEFAULT_TOKENS))
        if task.OUTPUT_TYPE == "generate_until" and wanted >= context:
            raise UserError(
                f"{KEY}: {name} generates up to {wanted} tokens, the model has {context} positions in all; remove it, or "
                "lower max_gen_toks under generation_kwargs in your own task file"
            )


def _cut(task: Any, wrapped: Any) -> int:
    """Count this rank's requests whose beginning was cut off."""
    count = 0
    for request in task.instances:
        context, rest = request.args[0], request.args[1] if len(request.args) > 1 else ""
        if isinstance(rest, dict):
            count += len(wrapped.tok_encode(context)) > wrapped.max_length - int(
                rest.get("max_gen_toks", DEFAULT_TOKENS)
            )
        else:
            # the last token is only predicted
            count += len(wrapped.tok_encode(context + rest)) > wrapped.max_length + 1
    return count


def _result(name: str, output: Any, cut: int) -> dict[str, Any]:
    """Return one task (or group) of what `evaluate` returned."""
    numbers, samples = output["results"][name], output["samples"].get(name, [])
    counts = output["n-samples"].get(name, {})
    metrics = {}
    for key, value in numbers.items():
        metric, __, kind = key.partition(",")
        if not kind or metric.endswith("_stderr") or not isinstance(value, int | float):
            continue
        spread = numbers.get(f"{metric}_stderr,{kind}")
        metrics[key] = {
            "value": float(value),
            "stderr": float(spread) if isinstance(spread, int | float) and math.isfinite(spread) else None,
            "higher_is_better": bool(output["higher_is_better"].get(name, {}).get(metric, True)),
            "values": _values(samples, metric, kind, float(value)),
        }
    return {
        "items": counts.get("effective"),
        "of": counts.get("original"),
        "few_shot": output["n-shot"].get(name),
        "version": output["versions"].get(name),
        "cut": cut,
        "metrics": metrics,
    }


def _values(samples: Any, metric: str, kind: str, mean: float) -> list[float] | None:
    """Return the score of each item in the order of the data set where their mean is the task's score, else None."""
    own = sorted(
        (item for item in samples if item["filter"] == kind and metric in item), key=lambda item: item["doc_id"]
    )
    values = [item[metric] for item in own]
    if not values or not all(isinstance(value, int | float) for value in values):
        return None
    values = [float(value) for value in values]
    return values if math.isclose(sum(values) / len(values), mean, rel_tol=1e-9, abs_tol=1e-9) else None
