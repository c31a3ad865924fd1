"""CONTRIBUTING's instructions suffice: a phase with a recipe of its own, a release and a component, in a copy of the tree.

Each walkthrough lists the files it may touch; `make gen golden` derives the rest. Then the copy passes its own tests.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from embedded_cluster.base import paths
from fresh import checkout

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
ROOT = Path(__file__).resolve().parents[2]
DERIVED = (
    "charts/trainjob/",
    "docs/reference/compatibility.md",
    "docs/reference/sizing.md",
    "docs/reference/troubleshooting.md",
    "molecule/rhoai-",
    "tests/charts/golden.yaml",
)
"""What `make gen golden` writes."""
TESTS = (
    [f"training/tests/{name}" for name in ("config", "recipes/echo", "test_light.py")],
    [
        *(
            f"tests/contract/test_{name}.py"
            for name in ("chart_files", "docs", "packaging", "release", "tree", "values")
        ),
        *(f"tests/charts/test_{name}.py" for name in ("form", "golden", "install_lines", "policy", "presets")),
    ],
)
"""Those that read what the walkthroughs change: tables, values files, the schema, and what is derived from them."""
SKIPPED = "not e2e and not api and not fresh and not vm and not slow and not rest and not tier"
CONFIG = '''

class EchoPhase(ChatPhase):
    """A model that is left as it is."""

    recipe: Literal["echo"] = Field(description="echo: the model is left as it is.")
    model: inputs.TunedModel
    data: inputs.AnswerData
    gate: judging.AnswerGate = judging.AnswerGate()
    serve: OwnServe = OwnServe()
'''
RECIPE = '''"""Leaves the model as it is; judged as recipe sft is."""

from pathlib import Path
from typing import Any

from trainlab.config.phases import EchoPhase
from trainlab.data import chat_rows
from trainlab.evaluation import answer_gate
from trainlab.recipes import language
from trainlab.recipes.base import Run, Scores

SCORES, decide, origin = answer_gate.SCORES, answer_gate.decide, language.origin
fetch, data_dir, preload, probe = language.fetch, language.data_dir, language.preload, language.probe
report, serve = language.report, language.serve


def preflight(phase: EchoPhase, model_dir: Path, data_dir: Path) -> None:
    """Raise UserError for a missing model."""
    language.check_model(phase, model_dir)


def train(run: Run) -> tuple[Scores, Scores]:
    """Load, score, save, score."""
    from trainlab.evaluation import answer_score

    loaded = language.load_base(run)
    heldout = chat_rows.load_heldout(run.phase.data, run.data_dir)
    before = language.scored(run, "before", loaded, heldout, answer_score.score)
    language.fit(run, fit, loaded, [])
    return before, language.scored(run, "after", language.load_tuned(run), heldout, answer_score.score)


def rescore(run: Run) -> None:
    """Change nothing."""


def fit(job: Any) -> dict[str, Any]:
    """Leave best_model/; return the summary."""
    job.model.save_pretrained(job.run_dir / "best_model")
    job.tokenizer.save_pretrained(job.run_dir / "best_model")
    return {"recipe": job.phase.recipe, "steps": 0}
'''
TEST = '''"""Recipe echo, from its phase to its gate and report."""

import copy
from pathlib import Path
from typing import Any

from tiny import make_phase, write_data
from trainlab import recipes
from trainlab.recipes.base import Run
from trainlab.report import terminal
from trainlab.run import results


def test_nothing_is_learnt(phase_dict: dict[str, Any], tiny_model: Path, tmp_path: Path) -> None:
    phase = make_phase({**phase_dict, "recipe": "echo"}, train={"epochs": 1})
    run_dir, rows = tmp_path / "run", write_data(tmp_path / "data")
    run_dir.mkdir()
    before, after = recipes.get_recipe(phase).train(Run(phase, run_dir, tiny_model, rows))
    gate = results.decide(phase, run_dir, before, after)
    assert before["answer_loss"] == after["answer_loss"] and not gate["promoted"]
    told = [row["what"] for row in terminal.rows(gate, recipes.get_recipe(phase).SCORES)]
    assert told == ["fact recall", "ended by itself", "answer loss"]
'''
IDENTITY = ("git", "-c", "user.name=t", "-c", "user.email=t@example.com")
MAIN = """// Command hello says so.
package main

import "fmt"

func main() { fmt.Println("hello") }
"""


class Tree:
    """A clone of the checkout, with uncommitted changes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        checkout.clone(folder, os.getuid())
        self.commit("as it is")

    def run(self, *command: str) -> str:
        """Run a command in the copy; fails with its output."""
        gone = ("PYTEST_", "MAKE", "MFLAGS", "GOLDEN", "COV_", "GIT_")
        env = {key: value for key, value in os.environ.items() if not key.startswith(gone)}
        env["PYTHONPATH"] = str(self.folder / "training" / "src")
        done = subprocess.run(
            command, cwd=self.folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-6000:]}"
        return done.stdout

    def make(self, *targets: str) -> str:
        """Run targets of the Makefile with this Python; the environment and the programs exist already."""
        there = [f"--old-file={name}" for name in ("ready", "venv", "venv-dev", "binaries-gate")]
        return self.run("make", *there, f"BIN={Path(sys.executable).parent}", *targets)

    def commit(self, why: str) -> None:
        """Commit everything."""
        self.run("git", "add", "--all")
        self.run(*IDENTITY, "commit", "--quiet", "--allow-empty", "--message", why)

    def touched(self) -> set[str]:
        """Return the changed and new files that no command derives."""
        lines = self.run("git", "status", "--porcelain", "--untracked-files=all").splitlines()
        return {name for line in lines if not (name := line[3:]).startswith(DERIVED)}

    def write(self, name: str, text: str) -> None:
        """Write a file."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def insert(self, name: str, before: str, text: str) -> None:
        """Insert text before the only occurrence of `before`."""
        old = (self.folder / name).read_text(encoding="utf-8")
        assert old.count(before) == 1, f"{name}: {before!r} stands there {old.count(before)} times"
        self.write(name, old.replace(before, text + before))


@pytest.fixture(scope="module")
def copy_of_tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return Tree(tmp_path_factory.mktemp("walk") / "trainlab")


@pytest.fixture
def tree(copy_of_tree: Tree) -> Tree:
    """Return the copy as the last successful walkthrough committed it: a failed one leaves nothing to the next."""
    copy_of_tree.run("git", "reset", "--quiet", "--hard")
    copy_of_tree.run("git", "clean", "--quiet", "--force", "-d")
    return copy_of_tree


def test_a_recipe_with_a_phase(tree: Tree) -> None:
    config, package = "training/src/trainlab/config/phases.py", "training/src/trainlab/recipes"
    tree.insert(config, "\n\nAnyPhase = ", CONFIG)
    tree.insert(config, " | ResnetPhase,", " | EchoPhase")
    tree.insert(config, '    "resnet": ResnetPhase,', '    "echo": EchoPhase,\n')
    tree.insert(f"{package}/__init__.py", '    "resnet": ', '    "echo": echo,\n')
    tree.insert(f"{package}/__init__.py", "dpo, pretrain, resnet, sft\n", "echo, ")
    tree.write(f"{package}/echo.py", RECIPE)
    tree.write("training/tests/recipes/echo/test_echo.py", TEST)
    small = yaml.safe_load((ROOT / "values" / "local" / "survival.yaml").read_text(encoding="utf-8"))["phase"]
    del small["train"], small["lora"], small["evaluate"]["probes"]
    small["resources"]["memory"] = "16Gi"  # the planner counts all layers for a recipe that it does not know
    whole = {"name": "echo", "recipe": "echo", "title": "Nothing is learnt", **small}
    whole["data"] = {"source": "builtin:survival", **small["data"]}
    for folder, phase in (("values", whole), ("values/local", small)):
        overlay = " -f values/local/echo.yaml" if folder == "values/local" else ""
        line = f"# helm install echo charts/trainjob -f values/echo.yaml{overlay} -f artifacts/site.yaml\n"
        tree.write(f"{folder}/echo.yaml", f"---\n{line}" + yaml.safe_dump({"phase": phase}, sort_keys=False))
    checked = tree.run(
        sys.executable, "-m", "trainlab.cli", "check", "values/echo.yaml", "-f", "values/local/echo.yaml"
    )
    assert "valid: phase echo (echo, 4 ranks" in checked
    tree.make("gen", "golden")
    assert tree.touched() == {
        config,
        f"{package}/__init__.py",
        f"{package}/echo.py",
        "training/tests/recipes/echo/test_echo.py",
        "values/echo.yaml",
        "values/local/echo.yaml",
    }
    tree.commit("feat: recipe echo")


@pytest.mark.rest
def test_a_release(tree: Tree) -> None:
    rows = yaml.safe_load((ROOT / "meta" / "releases.yml").read_text(encoding="utf-8"))
    row = {**rows["3.5"], "version": "3.7.0", "channels": {**rows["3.5"]["channels"], "rhoai": "stable-3.7"}}
    table = tree.folder / "meta" / "releases.yml"
    table.write_text(table.read_text("utf-8") + yaml.safe_dump({"3.7": row}), encoding="utf-8")
    crds = tree.folder / "tests" / "crds"
    shutil.copytree(crds / "rhoai-3.5", crds / "rhoai-3.7")
    statuses = tree.folder / "tests" / "api_server" / "statuses"
    shutil.copy(statuses / "rhoai-3.5.yaml", statuses / "rhoai-3.7.yaml")
    tree.insert("tests/crds/README.md", "| `gpu-operator` |", "| `rhoai-3.7` | the same | the same | 294d62e74337 |\n")
    tree.make("gen")
    copied = {f"tests/crds/rhoai-3.7/{path.name}" for path in (crds / "rhoai-3.7").iterdir()}
    copied.add("tests/api_server/statuses/rhoai-3.7.yaml")
    assert tree.touched() == {"meta/releases.yml", "tests/crds/README.md", *copied}
    assert (tree.folder / "molecule" / "rhoai-3.7" / "molecule.yml").is_symlink()
    tree.commit("feat: release 3.7")


def test_a_component(tree: Tree) -> None:
    modules = "cluster/embedded_cluster/builds/modules.py"
    tree.write("cluster/hello/go.mod", "module trainlab.local/hello\n\ngo 1.21\n")
    tree.write("cluster/hello/main.go", MAIN)
    tree.insert(modules, '"resolves",)', '"hello", ')
    tree.insert(modules, '            Component("resolves", "."),', '            Component("hello", "."),\n')
    tree.run(sys.executable, "cluster", "build")
    (program,) = (paths.CACHE / "bin").glob("hello-*")
    assert tree.run(str(program)) == "hello\n"
    program.unlink()
    assert tree.touched() == {"cluster/hello/go.mod", "cluster/hello/main.go", modules}
    tree.commit("feat: component hello")


@pytest.mark.rest
def test_the_copy_passes_its_tests(tree: Tree) -> None:
    """With the recipe, which `make test-rest` has not added before."""
    if not (tree.folder / "training" / "tests" / "recipes" / "echo").exists():
        test_a_recipe_with_a_phase(tree)
    for tests in TESTS:  # Ansible patches sys.intern, of which torch wants the builtin
        told = tree.run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", SKIPPED, *tests)
        assert "passed" in told.splitlines()[-1]
    tree.run("env", "PYTHONPATH=training/src:cluster", str(Path(sys.executable).parent / "lint-imports"), "--no-cache")
