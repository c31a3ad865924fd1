"""What may not go together with the section `data.hub:`."""

from trainlab.config.phase_fields import PhaseFields
from trainlab.config.section_hub import KIND, NOTE, QUESTIONS, RECIPE, VERSES, Columns, Hub


def conflict(phase: PhaseFields) -> str | None:
    """Return what does not fit together in a phase as `key: reason; remedy` below phase, None when all is well."""
    source, hub = phase.data.source, phase.data.hub
    if phase.recipe != RECIPE or not source.startswith(KIND):
        if hub not in (None, Hub()):
            return f"data.hub: data.source {source} with recipe {phase.recipe} does not read this block; remove it"
        return None
    if phase.stage.name:
        return (
            f"data.source: {source} in stage {phase.stage.name}; rows of a hub are measured with the model's tokenizer, "
            "which a stage gets from its parent: set a pvc: folder"
        )
    if hub is None or not hub.accept_licence:
        return f"data.hub.accept_licence: false with data.source {source}; {NOTE}"
    named = [name for name in Columns.model_fields if getattr(hub.columns, name) is not None]
    verses, questions = ([name for name in pair if name in named] for pair in (VERSES, QUESTIONS))
    if questions and (verses or "form" in named):
        return f"data.hub.columns: {', '.join(named)} do not go together; name instruction, verse and form, or question and answer"
    for pair, have in ((VERSES, verses), (QUESTIONS, questions)):
        if len(have) == 1:
            return (
                f"data.hub.columns: {have[0]} alone; name {' and '.join(pair)}, or neither for columns of these names"
            )
    return None
