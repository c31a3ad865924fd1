"""Wrong values are refused before any object is made, in the sentences of the CLI."""

import ast
import sys
from pathlib import Path
from types import FrameType

import pytest
import yaml
from trainlab import config
from trainlab.loading import ConfigErrors, load_values

from charts.cli import check
from charts.rendering import REAL_CLUSTER, VALUES, template

FULL = str(VALUES / "survival.yaml")
UNKNOWN = {
    "phase.train.epoch": "phase: {train: {epoch: 3}}",
    "phase.trian": "phase: {trian: {}}",
    "site.storage.models.sice": "site: {storage: {models: {sice: 1Gi}}}",
    "stie": "stie: {}",
}
RULES = {
    "phase.vision": "phase: {vision: {flip: true}}",
    "phase.resources.processes_per_node": "phase: {resources: {processes_per_node: 3, gpus_per_node: 2}}",
    "phase.train.memory_snapshot": "phase: {train: {memory_snapshot: true}, resources: {gpus_per_node: 0}}",
    "phase.unfreeze.tie_word_embeddings": "phase: {unfreeze: {tie_word_embeddings: true, lm_head: false}}",
    "phase.train.cache_frozen_activations": "phase: {train: {cache_frozen_activations: true}, unfreeze: {tie_word_embeddings: true}}",
    "phase.lora.rank": "phase: {lora: {rank: 8}, train: {cache_frozen_activations: true}}",
    "phase.train.packing": "phase: {train: {packing: true, cache_frozen_activations: true}}",
    "phase.lora.target_modules": "phase: {lora: {target_modules: [lm_head]}}",
    "phase.serve.gpus": "phase: {serve: {gpus: 0}}",
    "phase.evaluate.generate_rows": "phase: {evaluate: {generate_rows: 9}, data: {heldout_rows: 8}}",
    "site.gpuResource": "site: {gpuResource: gpu}",
    "site.images.vllm": 'site: {images: {vllm: ""}}',
    "site.storage.models.accessMode": "site: {storage: {models: {accessMode: ReadWriteOnce}}}",
    "site.storage.runs.accessMode": "site: {storage: {runs: {accessMode: ReadWriteOnce}}}",
    "site.storage.data.accessMode": "site: {storage: {data: {size: 1Gi, accessMode: ReadWriteOnce}}}",
    "site.storage.models.subPath": "site: {storage: {models: {subPath: /models}}}",
    "site.storage.runs.subPath": "site: {storage: {runs: {subPath: a/../b}}}",
    "site.storage.data.subPath": "site: {storage: {data: {existing: c, subPath: a b}}}",
}
SENTENCES = UNKNOWN | RULES
LANGUAGE = ["model: {source: 'builtin:resnet18'}", "data: {source: 'builtin:digits'}", "gate: {metric: accuracy}"]
VISION = [
    "recipe: sft",
    "unfreeze: {layers: 3}",
    'questions: ["Why?"]',
    "model: {source: 'pvc:x'}",
    "data: {source: 'builtin:survival'}",
    "gate: {metric: fact_recall}",
    "serve: {runtime: vllm, gpus: 1}",
    "train: {cache_frozen_activations: true}",
    "data: {source: 'builtin:digits'}",
    "evaluate: {tasks: [arc_easy, gsm8k]}",
]
"""What recipe sft and recipe resnet refuse of each other (config/rules_vision.py); the last but one: a mirrored digit."""
QUESTIONS = ["text: {column: body}", "data: {source: 'pydoc:topics'}", "gate: {metric: perplexity}"]
SET = f"source: 'hf:own/set@{'0' * 40}'"
HUB = {
    "survival": [
        f"data: {{{SET}}}",
        f"data: {{{SET}, hub: {{columns: {{verse: a, instruction: b}}}}}}",
        f"data: {{{SET}, hub: {{accept_licence: true, columns: {{verse: a}}}}}}",
        f"data: {{{SET}, hub: {{accept_licence: true, columns: {{question: a, form: b, verse: c}}}}}}",
        "data: {hub: {accept_licence: true}}",
    ],
    "gemma": ["data: {hub: {fetch_rows: 5}}"],
    "resnet": [f"data: {{{SET}}}"],
    "staged-sft": [f"data: {{{SET}, hub: {{accept_licence: true}}}}"],
}
"""What is refused of the rows of a hub (config/rules_hub.py), and without them."""
TEXT = [
    "data: {source: 'builtin:survival'}",
    "gate: {metric: answer_loss}",
    "lora: {rank: 8}",
    "train: {cache_frozen_activations: true}",
    "serve: {runtime: vllm, gpus: 1}",
    "vision: {flip: true}",
    "model: {source: 'builtin:resnet18'}",
]
"""What recipe sft refuses of recipe cpt, and recipe cpt of both others (config/rules_text.py)."""


STAGE = {
    "survival": [
        "recipe: dpo",
        "stage: {beta: 0.2}",
        "model: {source: 'init:llama-2.4M'}",
        "gate: {metric: preference_margin}",
        "evaluate: {tasks: [arc_easy, gsm8k, hellaswag, gsm8k]}",
    ],
    "staged-pretrain": [
        "recipe: cpt",
        "stage: {parent: sft}",
        "model: {source: 'pvc:x'}",
        "stage: {curriculum: [{length: 300, share: 1}]}",
        "stage: {curriculum: [{length: 512, share: 0.5}]}",
        "stage: {curriculum: [{length: 1024, share: 0.5}, {length: 512, share: 0.5}]}",
    ],
    "staged-sft": [
        "stage: {parent: ''}",
        "stage: {parent: dpo}",
        "model: {source: 'init:llama-2.4M'}",
        "lora: {rank: 8}",
        "train: {cache_frozen_activations: true, packing: false}",
        "stage: {curriculum: [{length: 512, share: 1}]}",
    ],
    "staged-lora": [
        "lora: {rank: 0}",
        "stage: {fsdp: true}",
        "resources: {gpus_per_node: 0, processes_per_node: 1}, stage: {compile: true}",
    ],
    "staged-dpo": ["gate: {metric: answer_loss}", "serve: {runtime: vllm, gpus: 1}"],
}
"""What a phase that is no stage refuses of one (last of survival: config/rules.py), and the stages of each other (config/rules_stage.py)."""


REFUSED = [
    *(("survival", one) for one in LANGUAGE + QUESTIONS),
    *(("resnet", one) for one in VISION),
    *(("gemma", one) for one in TEXT),
    *((name, one) for rules in (STAGE, HUB) for name, several in rules.items() for one in several),
]


@pytest.mark.parametrize("key", SENTENCES)
def test_helm_says_the_sentence_of_the_check(key: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(SENTENCES[key], encoding="utf-8")
    done = template((FULL, str(file)))
    assert done.returncode != 0
    sentence = done.stderr.split("): ", 1)[1].splitlines()[0]
    assert sentence.startswith(f"{key}: ")
    told = check(FULL, str(file))
    assert told.returncode == 2
    assert sentence in told.stderr


@pytest.mark.parametrize(
    "phase",
    REFUSED,
)
def test_helm_and_the_cli_refuse_what_the_recipe_does_not_take(phase: tuple[str, str], tmp_path: Path) -> None:
    full, file = str(VALUES / f"{phase[0]}.yaml"), tmp_path / "wrong.yaml"
    file.write_text(f"phase: {{{phase[1]}}}", encoding="utf-8")
    done, told = template((full, str(file))), check(full, str(file))
    assert done.returncode != 0 and told.returncode == 2
    sentence = done.stderr.split("): ", 1)[1].splitlines()[0]
    assert sentence.startswith("phase.") and sentence in told.stderr


def test_rows_of_a_hub_name_the_same_run_with_and_without_their_defaults(tmp_path: Path) -> None:
    """Ansible hands on all keys, a values file few of them."""
    names, files = set(), (tmp_path / "short.yaml", tmp_path / "long.yaml")
    hub = "accept_licence: true, columns: {verse: Label, instruction: Instruction}"
    files[0].write_text(f"phase: {{data: {{{SET}, hub: {{{hub}}}}}}}", encoding="utf-8")
    defaults = "config: null, split: train, fetch_rows: 20000, heldout_fraction: 0.1"
    files[1].write_text(f"phase: {{data: {{{SET}, hub: {{{hub}, {defaults}}}}}}}", encoding="utf-8")
    for file in files:
        done = template((FULL, str(file)))
        assert done.returncode == 0, done.stderr
        names.add(next(line for line in done.stdout.splitlines() if "trainlab.dev/run: " in line))
    assert len(names) == 1


def test_every_rule_of_the_model_is_among_these(tmp_path: Path) -> None:
    """Each rule over several keys in config/ is broken by one of these files: one that is added is also asked of Helm.

    But for a regular expression of Python's, which Helm cannot read.
    """
    sentences = {
        (file, node.lineno): range(node.lineno, (node.end_lineno or node.lineno) + 1)
        for file in map(str, Path(config.__file__).parent.glob("*.py"))
        for function in ast.walk(ast.parse(Path(file).read_text("utf-8")))
        if isinstance(function, ast.FunctionDef) and function.name != "_pattern"
        for node in ast.walk(function)
        if _is_rule(node)
    }
    ran, file = set(), tmp_path / "wrong.yaml"

    def traced(frame: FrameType, event: str, _argument: object) -> object:
        if "/trainlab/config/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            ran.add((frame.f_code.co_filename, frame.f_lineno))
        return traced

    before = sys.gettrace()
    for phase, text in [("survival", text) for text in SENTENCES.values()] + [
        (phase, f"phase: {{{text}}}") for phase, text in REFUSED
    ]:
        file.write_text(text, encoding="utf-8")
        sys.settrace(traced)
        try:
            with pytest.raises(ConfigErrors):
                load_values([VALUES / f"{phase}.yaml", file])
        finally:
            sys.settrace(before)
    missing = [where for where, lines in sentences.items() if not any((where[0], line) in ran for line in lines)]
    assert sentences and not missing


def _is_rule(node: ast.AST) -> bool:
    """Whether this says a sentence: `return` of text, or `raise` of an error with text of its own."""
    said = any(isinstance(part, ast.Constant) and ": " in str(part.value) for part in ast.walk(node))
    return isinstance(node, ast.Return | ast.Raise) and said


@pytest.mark.parametrize("key", ["name", "recipe", "title", "model", "data"])
def test_a_missing_key_is_named(key: str, tmp_path: Path) -> None:
    whole = yaml.safe_load(Path(FULL).read_text(encoding="utf-8"))
    del whole["phase"][key]
    file = tmp_path / "wrong.yaml"
    file.write_text(yaml.safe_dump(whole), encoding="utf-8")
    done = template((str(file),))
    assert done.returncode != 0
    assert key in done.stderr and "missing" in done.stderr


def test_no_phase_is_named() -> None:
    done = template(())
    assert done.returncode != 0
    assert "missing" in done.stderr and "phase" in done.stderr
    assert "nil pointer" not in done.stderr


@pytest.mark.parametrize("path", ["/", "a//b", "a/", ".", "./a", "..", "a/..", "a\\b", "a,b"])
def test_paths_that_are_no_folder_inside_a_claim(path: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(yaml.safe_dump({"site": {"storage": {"runs": {"subPath": path}}}}), encoding="utf-8")
    for done in (template((FULL, str(file))), check(FULL, str(file))):
        assert done.returncode != 0 and "site.storage.runs.subPath: " in done.stderr
        assert "is no folder inside a claim; write names of letters" in done.stderr


def test_one_claim_for_one_node_is_refused_for_several(tmp_path: Path) -> None:
    """A shared claim that one node can mount: the rule speaks of it as of two."""
    volume = {"existing": "mine", "accessMode": "ReadWriteOnce"}
    storage = {"models": volume | {"subPath": "models"}, "runs": volume | {"subPath": "runs"}}
    file = tmp_path / "one.yaml"
    file.write_text(yaml.safe_dump({"site": {"storage": storage}}), encoding="utf-8")
    for done in (template((FULL, str(file))), check(FULL, str(file))):
        assert done.returncode != 0
        assert "site.storage.models.accessMode: ReadWriteOnce with phase.resources.nodes 4" in done.stderr
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text("phase: {resources: {nodes: 1}}", encoding="utf-8")
    assert template((FULL, str(file), str(nodes))).returncode == 0 == check(FULL, str(file), str(nodes)).returncode


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("phase.resources.nodes", "0", "/phase/resources/nodes': minimum: got 0, want 1"),
        ("phase.train.batch_size", "0", "/phase/train/batch_size': minimum: got 0, want 1"),
        ("phase.train.batch_size", "many", "/phase/train/batch_size': got string, want integer"),
        ("phase.recipe", "magic", "/phase/recipe'"),
        ("phase.model.source", "gpt", "/phase/model/source': 'gpt' does not match pattern"),
        ("site.spread", "wide", "/site/spread': value must be one of"),
        ("site.storage.data.size", "big", "/site/storage/data/size': 'big' does not match pattern"),
        ("site.storage.runs.accessMode", "RWX", "/site/storage/runs/accessMode': value must be one of"),
    ],
)
@pytest.mark.parametrize("name", ["helm", "helm4"])
def test_types_and_bounds_are_the_schemas(key: str, value: str, says: str, name: str) -> None:
    done = template((FULL,), f"{key}={value}", name=name)
    assert done.returncode != 0
    assert says in done.stderr


@pytest.mark.parametrize("release", ["a" * 31, "1demo", "de.mo"])
def test_release_names_that_pods_cannot_have(release: str) -> None:
    done = template((FULL,), release=release)
    assert done.returncode != 0
    assert f"release name: {release} is no name for pods; take at most 30" in done.stderr


def test_longest_release_fits() -> None:
    assert template((FULL,), release="a" * 30).returncode == 0


@pytest.mark.parametrize(
    ("api", "missing", "says"),
    [
        ("auto", "kubeflow.org/v1/PyTorchJob", "serves neither kubeflow.org/v1 PyTorchJob nor trainer.kubeflow.org"),
        ("pytorchjob", "kubeflow.org/v1/PyTorchJob", "the cluster serves no kubeflow.org/v1 PyTorchJob; install"),
        ("trainjob", "", "the cluster serves no trainer.kubeflow.org/v1alpha1 TrainJob; install"),
        ("auto", "serving.kserve.io/v1beta1", "site.serving: true, but the cluster serves no serving.kserve.io"),
    ],
)
def test_operators_that_the_cluster_lacks(api: str, missing: str, says: str) -> None:
    served = tuple(one for one in REAL_CLUSTER if one != missing)
    done = template((FULL,), f"site.trainingApi={api}", served=served)
    assert done.returncode != 0
    assert says in done.stderr


def test_global_values_of_helm_are_no_unknown_key() -> None:
    assert template((FULL,), "global.x=1").returncode == 0
