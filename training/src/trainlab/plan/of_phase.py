"""The plan of a run's own phase, without its site: for the manifest, and for what compares runs with their plans."""

from dataclasses import replace
from typing import Any

from trainlab.config import Phase, ResnetPhase, Values
from trainlab.errors import UserError
from trainlab.plan import devices, estimate, source


def plan(
    phase: Phase,
    gpu: str | None = None,
    network: float = 1.0,
    rows: int | None = None,
    tokens_per_row: float | None = None,
) -> estimate.Plan:
    """Return the plan of a phase on GPUs of this name, nodes linked with `network` bytes per second.

    `rows` and `tokens_per_row` count where the planner does not know the data set. A GPU that is not in the table is planned as the
    default one, on which bytes do not depend. `parameters` is None for an unknown model.
    """
    fields: dict[str, Any] = {"phase": phase}
    values = Values.model_construct(**fields)  # not judged again: the site is the chart's, and not the default one
    job = source.job_of(values, [])
    job = replace(job, rows=job.rows or rows, tokens_per_row=job.tokens_per_row or tokens_per_row)
    try:
        job, device, _ = source.device_of(values, job, gpu.replace(" ", "-") if gpu and job.on_gpu else None)
    except UserError:
        device = devices.find(source.DEFAULT_GPU)
    if isinstance(phase, ResnetPhase):
        return estimate.estimate_images(phase, job, device, network)
    return estimate.estimate(job, device, network)
