"""`trainlab room`: options become a room, which uvicorn serves."""

import argparse
import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from trainlab.errors import UserError
from trainlab.room import cards, helm_repository, keys
from trainlab.room.interface import Runner, TakesHome
from trainlab.room.rounds import Rounds

if TYPE_CHECKING:
    from trainlab.room.settings import Room

SEATS, AT_ONCE = 40, 16
PACKAGES = ("fastapi", "uvicorn", "httpx", "jinja2", "segno")
"""Those of pyproject.toml's extra `room`."""
GRACE_SECONDS = 3  # for streams that are open when the room ends


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `trainlab room`."""
    text = "address of served models, or 'URL#MODEL as base'; may be repeated"
    parser.add_argument("--engine", action="append", required=True, metavar="URL[#MODEL as LABEL]", help=text)
    parser.add_argument(
        "--state", type=Path, required=True, metavar="DIR", help="folder of the room's state, which survives it"
    )
    parser.add_argument("--cards", type=Path, metavar="DIR", help="folder of cards; without it nothing is taught")
    text = "values file whose title and questions are shown"
    parser.add_argument("--values", type=Path, metavar="FILE", help=text)
    text = "run directory: its report, and which questions were never taught"
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help=text)
    parser.add_argument("--report", default="", metavar="URL", help="address of a report elsewhere")
    parser.add_argument("--title", default="", help="title of the pages [that of the values file]")
    parser.add_argument(
        "--address", default="", metavar="URL", help="what phones open, for the QR code [that of the request]"
    )
    parser.add_argument("--seats", type=int, default=SEATS, metavar="N", help="places of a round (default %(default)s)")
    text = "answers that an engine generates at a time; others stand in line (default %(default)s)"
    parser.add_argument("--at-once", type=int, default=AT_ONCE, metavar="N", help=text)
    text = f"file of the secret that signs cookies [{keys.VARIABLE}, one made in --state]"
    parser.add_argument("--key-file", type=Path, metavar="FILE", help=text)
    text = "values file of recipe adapters: closing a round trains it here, in processes of this machine (with --models, --runs)"
    parser.add_argument("--job", type=Path, metavar="FILE", help=text)
    text = "what `helm template` of charts/trainjob renders for those values: closing a round trains it in this pod's namespace"
    parser.add_argument("--manifests", type=Path, metavar="FILE", help=text)
    text = "ConfigMap that owns the jobs of --manifests, so that they go with it"
    parser.add_argument("--owner", default="", metavar="NAME", help=text)
    text = "folder of Helm charts, which the room serves as a chart repository at /charts, for places of attendees' own (with --values)"
    parser.add_argument("--charts", type=Path, metavar="DIR", help=text)
    parser.add_argument(
        "--models", type=Path, metavar="DIR", help="folder of base models, where rounds' rows are written"
    )
    parser.add_argument("--runs", type=Path, metavar="DIR", help="folder of run directories, which the engine serves")
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on (default %(default)s)")
    parser.add_argument("--port", type=int, default=8080, help="port to listen on (default %(default)s)")


def _check_packages() -> None:
    if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        raise UserError(
            f"trainlab room needs {', '.join(missing)}, which this environment lacks; run `make venv-dev` in the checkout, or pip install 'trainlab[room]'"
        )


def room_of(args: argparse.Namespace, runner: Runner | None = None) -> "Room":
    """Return the room that the options describe. Raises UserError."""
    _check_packages()
    from trainlab.room.engine import Engines
    from trainlab.room.settings import Question, Room, prepared

    for option, value, most in (("--seats", args.seats, 400), ("--at-once", args.at_once, 1000)):
        if not 1 <= value <= most:
            raise UserError(f"{option} {value}: must be 1 to {most}")
    if runner is not None and args.cards is None:
        raise UserError("--cards: name the folder of cards that visitors fill, such as data/cards")
    if args.address and not args.address.startswith(("http://", "https://")):
        raise UserError(f"--address {args.address}: write it as http://HOST:PORT")
    title, max_tokens = args.title or "Ask both models", 128
    questions: list[Question] = []
    served, name = dict[str, bytes](), ""
    if args.charts and not args.values:
        raise UserError("--charts: needs --values, the phase that attendees install with them")
    if args.values:
        from trainlab.config import LanguagePhase
        from trainlab.config.loading import load_values

        phase = load_values([args.values], os.environ).phase
        if not isinstance(phase, LanguagePhase):
            raise UserError(
                f"--values {args.values}: phase {phase.name} serves no language model; the room asks such only"
            )
        title, max_tokens = args.title or phase.title, phase.serve.max_tokens
        questions = prepared(phase, args.run_dir)
        if args.charts:
            name, values = phase.name, yaml.safe_dump({"phase": phase.model_dump(mode="json")}, allow_unicode=True)
            served = {**helm_repository.repository(args.charts), f"{name}.yaml": values.encode()}
    return Room(
        key=keys.load(args.state, args.key_file),
        rounds=Rounds(args.state, cards.load(args.cards) if args.cards else {}, args.seats),
        engines=Engines(args.engine, max_tokens, args.at_once),
        title=title,
        questions=questions,
        runner=runner,
        address=args.address.rstrip("/"),
        run_dir=args.run_dir,
        report=args.report,
        charts=served,
        phase=name,
        **({"take_home": runner.take_home} if isinstance(runner, TakesHome) else {}),
    )


def _runner(args: argparse.Namespace) -> Runner | None:
    """Return what trains the rounds; both kinds read runs with the training stack."""
    if not args.job and not args.manifests:
        return None
    if args.job and args.manifests:
        raise UserError("--job and --manifests: give one; rounds are trained on this machine or in this namespace")
    option = "--job" if args.job else "--manifests"
    if args.models is None or args.runs is None:
        raise UserError(f"{option}: needs --models and --runs, the folders of base models and of run directories")
    if args.job:
        from trainlab.room.local_runner import LocalRunner

        return LocalRunner(args.job, args.models, args.runs, args.state)
    if not args.owner:
        raise UserError("--manifests: needs --owner, the ConfigMap that owns the jobs")
    from trainlab.room.kube_runner import KubeRunner
    from trainlab.run.kube import Kube, own_namespace

    kube = Kube.in_cluster(os.environ)
    return KubeRunner(args.manifests, args.owner, own_namespace(), args.models, args.runs, args.state, kube)


def from_args(args: argparse.Namespace, runner: Runner | None = None) -> int:
    """Serve the room until it is ended; return 0. Raises UserError."""
    _check_packages()
    import uvicorn

    from trainlab.room.app import create_app

    room = room_of(args, runner or _runner(args))
    address = room.address or f"http://localhost:{args.port}"
    print(f"room       {address}/")
    if room.runner is not None:
        print(f"phones     {address}/me")
    secret = f"{address}/presenter/enter/{room.key.link}  (keep it to yourself)"
    known = keys.LINK_VARIABLE in os.environ  # and not for the log
    print(f"board      {address}/board")
    print(f"presenter  {f'/presenter/enter/ and ${keys.LINK_VARIABLE}' if known else secret}", flush=True)
    uvicorn.run(
        create_app(room),
        host=args.host,
        port=args.port,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    return 0
