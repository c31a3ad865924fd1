"""The rules over `evaluate.tasks`; imported by config.py, so it must import neither torch nor the harness."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainlab.config import Phase

TASK = r"^(pvc:[\w./-]+\.ya?ml|[A-Za-z0-9][\w.+-]*)$"


def problem(phase: "Phase") -> str | None:
    """Return what does not fit together in a phase as `key: reason; remedy` below phase, None when all is well."""
    tasks = phase.evaluate.tasks
    if tasks and phase.recipe == "resnet":
        return f"evaluate.tasks: {', '.join(tasks)} with recipe resnet, which tunes no language model; set []"
    double = next((name for name in tasks if tasks.count(name) > 1), None)
    return f"evaluate.tasks: {double} stands there twice; name it once" if double else None
