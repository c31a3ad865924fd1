"""The pages for browsers: both answers side by side, and the run's report; used by api.py."""

import html
import json
from collections.abc import Sequence
from importlib.resources import files as package_files
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse, HTMLResponse, Response

from trainlab import files
from trainlab.config import LanguagePhase

# No external resources; the pages inline their style and script.
POLICY = "default-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'"
HEADERS = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
NO_REPORT = "<!doctype html><title>No report</title><p>This run has no report.html; <code>trainlab report RUN_DIR</code> creates it."


def page(phase: LanguagePhase, run_dir: Path | None = None) -> str:
    """Return the page for the audience, with the phase's title and questions filled in.

    Questions that the manifest of `run_dir` says were never taught are marked.
    """
    template = package_files("trainlab.serve").joinpath("page.html").read_text(encoding="utf-8")
    manifest = run_dir / "manifest.json" if run_dir else None
    data = files.read_json(manifest).get("data", {}) if manifest and manifest.is_file() else {}
    settings = {
        "questions": list(phase.questions),
        "neverTaught": data.get("never_taught", []),
        "maxTokens": phase.serve.max_tokens,
    }
    script = json.dumps(settings).replace("<", "\\u003c")  # no text can close the script element
    return template.replace("@@TITLE@@", html.escape(phase.title)).replace("@@SETTINGS@@", script)


def add(app: FastAPI, phase: LanguagePhase, run_dir: Path) -> None:
    """Add GET / and GET /report."""
    text = page(phase, run_dir)

    @app.get("/", response_class=HTMLResponse)
    async def root() -> HTMLResponse:
        return HTMLResponse(text, headers=HEADERS)

    add_report(app, run_dir)


def add_report(app: FastAPI, run_dir: Path, paths: Sequence[str] = ("/report",)) -> None:
    """Add GET /report (or other `paths`)."""

    async def report() -> Response:
        path = run_dir / "report.html"
        if not path.is_file():
            return HTMLResponse(NO_REPORT, status_code=404, headers=HEADERS)
        return FileResponse(path, media_type="text/html", headers=HEADERS)

    for path in paths:
        app.add_api_route(path, report, methods=["GET"], response_model=None)
