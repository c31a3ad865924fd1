"""`cluster/python cluster COMMAND`: a real Kubernetes cluster of one to four nodes on this machine, in namespaces.

Called by people, the roles embedded_cluster and image, and the tests. The last line of every command is changed=true or
changed=false (`exec` and `status` print only what was asked for, `trainer-image` ends with JSON). Exit codes: 0 done, 2 an
error that the message explains, 3 `check` says that this machine cannot host the cluster, 130 Ctrl-C, 143 SIGTERM.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

# Everything else is imported late, so that a wrong environment is reported as one sentence.
from embedded_cluster.base import ends, patience, say


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cluster/python cluster", description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text)

    nodes = {
        "type": int,
        "metavar": "N",
        "help": "number of nodes, 1 to 4 (default: those of the existing cluster, or 2)",
    }
    add("check", "report everything that this machine lacks; exit 3 when it cannot host the cluster").add_argument(
        "--nodes",
        **nodes,  # type: ignore[arg-type]
    )
    building = add("build", "build the programs from their Go modules")
    chosen = building.add_mutually_exclusive_group()
    chosen.add_argument(
        "--all", action="store_true", help="also what the cluster itself does not need: the tests' programs"
    )
    chosen.add_argument(
        "--only", nargs="+", metavar="NAME", help="those of the nodes, Helm, and these operators or tools"
    )
    writing = add("programs", "build all programs and write them, with their hashes, for TRAINLAB_PROGRAMS")
    writing.add_argument("folder", type=Path, metavar="FOLDER", help="where to write them")
    add("ready", "install what every command needs, or report what is missing")
    add("venv", "make the Python environment of the checkout and link it as .venv; prints its folder").add_argument(
        "--dev", action="store_true", help="with the training stack and the tools of the tests (Linux)"
    )
    add("demo", "the whole demo; PHASE and NODES set the phase and the number of nodes")
    add("demo-alone", "the same phase in local processes; PHASE and PORT set the phase and the server's port")
    add("room", "phones in this network teach the model of demo-alone; ROOM_PORT and ROOM_ADDRESS set where it listens")
    add("demo-down", "remove the cluster and stop the demo-alone server").add_argument(
        "--cache",
        action="store_true",
        help="also remove everything that was built, downloaded or trained by demo-alone",
    )
    add("align", "after a version change in a go.mod: align the versions that the modules share")
    add("images", "build the root folder and the images").add_argument(
        "--force", action="store_true", help="rebuild the images"
    )
    bringing = add("up", "bring up the cluster, or start the nodes of a stopped one with what they hold")
    bringing.add_argument("--nodes", **nodes)  # type: ignore[arg-type]
    bringing.add_argument(
        "--recreate", action="store_true", help="remove a cluster that cannot be kept, as RECREATE=1 does"
    )
    installing = add("operators", "install the operators")
    installing.add_argument("names", nargs="*", metavar="NAME", help="only these (default: all but kwok)")
    installing.add_argument("--kwok", action="store_true", help="also kwok, for fake GPU nodes")
    giving = add("manifests", "write the manifests of operators for any cluster; the last line is JSON")
    giving.add_argument("folder", type=Path, metavar="FOLDER", help="where to write NAME.yaml")
    giving.add_argument("names", nargs="+", metavar="NAME", help="which ones")
    add("load", "load images into every node").add_argument(
        "archives", nargs="+", type=Path, metavar="ARCHIVE", help="OCI archive or OCI layout folder"
    )
    image = add("trainer-image", "build the trainer image and load it into every node; the last line is JSON")
    image.add_argument("--push", metavar="REPOSITORY", default="", help="push it to HOST/NAME instead of loading it")
    image.add_argument(
        "--auth-file", metavar="FILE", default="", help="login for that registry (default: podman's, docker's)"
    )
    image.add_argument("--ca", metavar="FILE", default="", help="authority of that registry's certificate")
    image.add_argument(
        "--first-answer", action="store_true", help="then train phase quick in its root, and show an answer"
    )
    image.add_argument("--gpu", action="store_true", help="for nodes with GPUs: with a compiler for Triton")
    image.add_argument("--tracking", action="store_true", help="with the clients of MLflow and Weights & Biases")
    add("vllm-image", "build the image of vLLM for CPU and load it into every node; the last line is JSON")
    add("status", "print what is running, as JSON")
    enter = add("exec", "run a command in a node")
    enter.add_argument("node", help="n1, n2 ...")
    enter.add_argument("argv", nargs=argparse.REMAINDER, metavar="CMD", help="the command and its arguments")
    add("link", "slow the network between the nodes down, or end that; a stop or down ends it as well").add_argument(
        "--rate",
        default="full",
        metavar="RATE",
        help="what each node receives at most, such as 100mbit (default: full)",
    )
    add("stop", "end the nodes; the next `up` starts them with what they hold")
    add("down", "stop and remove the cluster")
    return parser


AS_ANYBODY = ("align", "build", "demo", "demo-alone", "demo-down", "manifests", "programs", "ready", "room", "venv")
"""Commands that do not need root: they build, or report themselves what they do without it."""


ANYWHERE = ("manifests", "ready", "venv")
"""Commands that work on macOS, too; without `venv --dev`, whose locked packages are for Linux."""


PRINTS_ONLY_ANSWERS = ("check", "exec", "ready", "status", "venv")
"""Commands whose output programs read: nothing is said of a busy machine, and they wait for little."""


def _checkout(arguments: argparse.Namespace) -> int:
    """Run a command of the checkout that reports its own outcome; returns the exit code."""
    command = arguments.command
    if command in ("ready", "venv"):
        from embedded_cluster.builds import pyenv

        pyenv.require_venv()
        if command == "ready":
            return 0
        sys.stdout.write(f"{pyenv.environment(arguments.dev)}\n")
        return 0
    if command == "demo":
        from embedded_cluster.tasks import demo

        return demo.run()
    if command == "room":
        from embedded_cluster.tasks import room

        return room.run()
    from embedded_cluster.tasks import alone

    return alone.run()


def _trainer_image(arguments: argparse.Namespace) -> int:
    from embedded_cluster.tasks import push, trainer_image

    if arguments.push:
        to = push.target(arguments.push, arguments.auth_file, arguments.ca)
        trainer_image.build_and_push(to, arguments.gpu, arguments.tracking)
    else:
        trainer_image.build(arguments.first_answer, arguments.tracking)
    return 0


def _change(arguments: argparse.Namespace) -> bool:
    """Run a command that changes something; returns whether it did."""
    from embedded_cluster.nodes import cluster, kept, operators

    if arguments.command == "build":
        return operators.make_programs(arguments.only, everything=arguments.all)
    if arguments.command == "programs":
        from embedded_cluster.builds import build, modules, prebuilt

        built = operators.make_programs(None, everything=True)
        written = [build.binary(name) for name, component in modules.COMPONENTS.items() if not component.rare]
        prebuilt.write(written, arguments.folder)
        return built
    if arguments.command == "align":
        from embedded_cluster.builds import align

        return align.align()
    if arguments.command == "images":
        return cluster.make_parts(force=arguments.force)
    if arguments.command == "up":
        return cluster.up(kept.count() if arguments.nodes is None else arguments.nodes, arguments.recreate)
    if arguments.command == "operators":
        names = set(arguments.names or operators.DEFAULT) | ({"kwok"} if arguments.kwok else set())
        return operators.install(names)
    if arguments.command == "load":
        from embedded_cluster.containers import images

        changed = [images.load(archive) for archive in arguments.archives]
        return any(changed)
    if arguments.command == "link":
        from embedded_cluster.nodes import link

        return link.shape(arguments.rate)
    if arguments.command == "demo-down":
        from embedded_cluster.tasks import down

        return down.run(arguments.cache)
    if arguments.command == "stop":
        return cluster.stop()
    return cluster.down()


def main() -> int:
    """Run the command line and return the exit code."""
    return ends.run(_main, after="run the same command again: it continues from here")


def _main() -> int:
    arguments = _parser().parse_args()
    patience.factor()  # an invalid one is reported before anything starts
    from embedded_cluster.base import home, system
    from embedded_cluster.builds import apt
    from embedded_cluster.tasks import environment, preflight

    if arguments.command not in ANYWHERE or getattr(arguments, "dev", False):
        system.require_linux()
    environment.prepare()
    if arguments.command not in PRINTS_ONLY_ANSWERS:
        patience.raise_for(os.getloadavg()[0], os.cpu_count() or 1)

    if arguments.command == "check":
        from embedded_cluster.nodes import kept

        return preflight.report(kept.count() if arguments.nodes is None else arguments.nodes)
    repository = getattr(arguments, "push", "")
    if arguments.command not in AS_ANYBODY and (blocked := preflight.cannot_start()):
        raise say.UserError(blocked + preflight.elsewhere(repository))
    if arguments.command not in ("status", "exec", "link", "stop", "down", "demo-down"):
        home.claim()
    if arguments.command in ("build", "demo", "demo-alone", "ready", "room", "venv") or repository:
        apt.ensure()
    if arguments.command in ("demo", "demo-alone", "ready", "room", "venv"):
        return _checkout(arguments)
    if arguments.command == "manifests":
        from embedded_cluster.nodes import operators

        names = operators.write(arguments.folder, arguments.names)
        sys.stdout.write(json.dumps({"changed": False, "names": names}) + "\n")
        return 0
    from embedded_cluster.base import running
    from embedded_cluster.nodes import cluster

    if arguments.command == "trainer-image":
        return _trainer_image(arguments)
    if arguments.command == "vllm-image":
        from embedded_cluster.tasks import vllm_image

        vllm_image.build()
        return 0
    if arguments.command == "status":
        sys.stdout.write(json.dumps(cluster.status(), indent=1) + "\n")
        return 0
    if arguments.command == "exec":
        argv = running.enter(arguments.node, arguments.argv or ["bash"])
        os.execvp(argv[0], argv)
    changed = _change(arguments)
    sys.stdout.write(f"changed={str(changed).lower()}\n")
    return 0
