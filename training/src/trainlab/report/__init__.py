"""The report of a run: report.json and one self-contained report.html; called by worker.py and `trainlab report`.

answer_report.py collects (JSON files to one dict), charts.py draws, page.html.j2 shows. A pure function of the run directory's
JSON files: the same files give the same report.
"""

from pathlib import Path

from trainlab import files, recipes
from trainlab.loading import load_values


def write(run_dir: Path, *, out: Path | None = None) -> Path:
    """Write RUN_DIR/report.json and the page (`out`, else RUN_DIR/report.html); return the page's path.

    Parts whose files are missing are named in the report. Raises UserError when there is no run in `run_dir`.
    """
    files.read_json(run_dir / "phase.json")  # says in a sentence that there is no run
    collected, text = recipes.of(load_values([run_dir / "phase.json"]).phase).report(run_dir)
    files.write_json(run_dir / "report.json", collected)
    target = out or run_dir / "report.html"
    files.write_text(target, text)
    return target
