"""Invalid values are refused before any object is created, with the CLI's messages."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from trainlab.config import PHASES, RULES
from trainlab.config.rule import PRODUCT_LABEL
from trainlab.config.rules import OVERRIDES, OWN_ENVIRONMENT
from trainlab.config.schema import NO_TEXT, allowed_keys, json_schema, rules

from charts.cli import check
from charts.rendering import CHART, HELMS, REAL_CLUSTER, SITE, VALUES, helm, template

FULL = str(VALUES / "survival.yaml")
SCHEMA = json_schema()["definitions"]["phase"]
OF_RECIPE = {
    yaml.load(path.read_text("utf-8"), yaml.CSafeLoader)["phase"]["recipe"]: path.stem
    for path in sorted(VALUES.glob("*.yaml"))
} | {"adapters": "room/adapters"}
"""A phase of each recipe."""
SET = f"source: 'hf:own/set@{'0' * 40}'"
HUB = f"phase: {{data: {{{SET}, table: {{accept_license: true, columns: {{%s}}}}}}}}"
GATE = "gate: {metric: answer_loss}"
ON_CPU = {"phase": {"serve": {"gpus": 0}}, "site": {"images": {"vllm": "a/vllm-cpu:1"}}}  # vLLM without GPUs
CACHED = "phase: {train: {cache_frozen_activations: true}, %s}"


def _keys(block: object) -> list[str]:
    return list(block) if isinstance(block, dict) else [""]


def _overlay(block: str, key: str) -> str:
    """Return an overlay with a value that the schema accepts."""
    node = SCHEMA["properties"][block]
    node = node["properties"][key] if key else node
    fits = next(
        one
        for one in (
            True,
            50,
            9,
            1.5,
            0.1,
            "off",
            "given",
            "trained",
            "tuned",
            "test",
            "sgd",
            "float32",
            "steps",
            "max-autotune",
            "pvc:a",
            "checkpoint-5",
            ["retention"],
            ["a"],
            [{"length": 32, "share": 1}],
            {},
        )
        if _valid(node, one)
    )
    return yaml.safe_dump({"phase": {block: {key: fits} if key else fits}})


def _valid(node: dict[str, Any], value: object) -> bool:
    return bool(jsonschema.Draft7Validator(node).is_valid(value))


UNKNOWN = [
    ("survival", "phase.train.epoch", "phase: {train: {epoch: 3}}"),
    ("survival", "phase.trian", "phase: {trian: {}}"),
    ("survival", "phase.train.epochs", "phase: {'train.epochs': 3}"),
    ("survival", "site.storage.models.sice", "site: {storage: {models: {sice: 1Gi}}}"),
    ("survival", "stie", "stie: {}"),
]
BROKEN = [
    ("survival", "phase.gate.min_refused", "phase: {data: {refused_rows: 0}, gate: {min_refused: 0.9}}"),
    ("survival", "site.env", "site: {env: {TRAINLAB_DATA: /x}}"),
    ("survival", "site.env", "site: {env: {PYTHONPATH: /x}}"),
    (  # all that other recipes read and this one does not
        "room/adapters",
        "phase.lora.dropout",
        "phase: {questions: [Why], lora: {dropout: 0.1}, train: {gradient_accumulation: 2, gradient_checkpointing: true, "
        "validation_fraction: 0.1}, data: {train_rows: 5, heldout_rows: 5}, evaluate: {tasks: [arc_easy]}}",
    ),
    ("survival", "phase.data.source", "phase: {data: {source: 'builtin:digits'}}"),
    ("staged-lora", "phase.serve.dtype", "phase: {serve: {dtype: float32}}"),
    ("staged-lora", "phase.serve.dtype", "phase: {serve: {dtype: null}}"),
    (
        "staged-lora",
        "phase.serve.dtype",
        "phase: {serve: {dtype: null}, model: {dtype: auto}, resources: {gpus_per_node: 0, processes_per_node: 1}}",
    ),
    (
        "staged-pretrain",
        "phase.text.prepare",
        "phase: {data: {source: 'pydoc:topics'}, text: {prepare: {source: 'pvc:raw'}}}",
    ),
    (
        "staged-pretrain",
        "phase.text.prepare",
        "phase: {stage: {tokenizer: trained}, text: {prepare: {source: 'pvc:raw'}}}",
    ),
    ("survival", "phase.data.table.config", "phase: {data: {taught: null, table: {config: main}}}"),
    ("survival", "phase.data.table.split", "phase: {data: {taught: null, table: {split: test}}}"),
    (
        "survival",
        "phase.data.table.question_template",
        "phase: {data: {taught: null, table: {question_template: 'Say {question}', columns: {verse: a, instruction: b}}}}",
    ),
    ("survival", "phase.data.source", "phase: {data: {taught: null, source: 's3:team/faq'}}"),
    ("staged-sft", "phase.data.table", "phase: {data: {table: {accept_license: true}}}"),
    ("staged-sft", "phase.data.source", f"phase: {{data: {{{SET}, table: {{accept_license: true}}}}}}"),
    ("survival", "phase.data.table.accept_license", f"phase: {{data: {{{SET}}}}}"),
    ("survival", "phase.data.table.accept_license", f"phase: {{data: {{{SET}, table: {{columns: {{verse: a}}}}}}}}"),
    *(
        ("survival", "phase.data.table.columns", HUB % f"{question}: a, {verse}: b")
        for question in ("question", "answer", "topic")
        for verse in ("instruction", "verse", "form")
    ),
    *(
        ("survival", "phase.data.table.columns", HUB % f"{one}: a")
        for one in ("instruction", "verse", "question", "answer")
    ),
    ("gemma", "phase.model.source", f"phase: {{model: {{source: 'hf:google/gemma-270m@{'0' * 40}'}}}}"),
    (
        "lyrics",
        "phase.model.source",
        f"phase: {{model: {{source: 'hf:microsoft/Phi-3-small-8k-instruct@{'0' * 40}'}}}}",
    ),
    ("resnet", "phase.vision.flip", "phase: {data: {source: 'builtin:digits'}}"),
    ("survival", "phase.model.source", "phase: {model: {source: 'parent:llama-2.4M'}}"),
    ("staged-sft", "phase.model.source", "phase: {model: {source: 'pvc:x'}}"),
    ("staged-sft", "phase.stage.parent", "phase: {stage: {parent: dpo}}"),
    ("staged-sft", "phase.lora.rank", "phase: {lora: {rank: 8}}"),
    ("staged-lora", "phase.lora.rank", "phase: {lora: {rank: 0}}"),
    ("staged-sft", "phase.train.cache_frozen_activations", CACHED % "lora: {rank: 0}"),
    ("quick", "phase.serve.args", "phase: {serve: {args: [--quantization=fp8]}}"),
    ("survival", "phase.serve.weights", "phase: {serve: {weights: base}}"),
    ("quick", "phase.serve.weights", "phase: {serve: {weights: base}}"),
    ("staged-lora", "phase.stage.fsdp", "phase: {stage: {fsdp: true}}"),
    (
        "staged-lora",
        "phase.stage.fsdp",
        "phase: {stage: {fsdp: true}, resources: {gpus_per_node: 0, processes_per_node: 1}}",
    ),
    (
        "staged-lora",
        "phase.stage.compile",
        "phase: {stage: {compile: true}, resources: {gpus_per_node: 0, processes_per_node: 1}}",
    ),
    ("staged-lora", "phase.stage.compile_mode", "phase: {stage: {compile: false, compile_mode: max-autotune}}"),
    ("survival", "phase.train.tf32", "phase: {train: {tf32: true}, resources: {gpus_per_node: 0}}"),
    ("survival", "phase.train.tf32", "phase: {train: {tf32: true}, model: {dtype: bfloat16}}"),
    ("survival", "phase.data.validation", f"phase: {{data: {{validation: 'hf:own/set@{'0' * 40}'}}}}"),
    ("staged-dpo", "phase.data.validation", f"phase: {{data: {{validation: 'hf:own/set@{'0' * 40}'}}}}"),
    ("staged-lora", "phase.stage.fp8", "phase: {stage: {fp8: 'on'}, model: {dtype: bfloat16}}"),
    ("staged-lora", "phase.stage.fp8", "phase: {stage: {fp8: 'on', compile: true}}"),
    (
        "staged-lora",
        "phase.stage.fp8",
        "phase: {stage: {fp8: 'on'}, model: {dtype: bfloat16}, resources: {gpus_per_node: 0, processes_per_node: 1}}",
    ),
    (
        "survival",
        "phase.unfreeze.tie_word_embeddings",
        "phase: {unfreeze: {tie_word_embeddings: true, lm_head: false}}",
    ),
    (
        "survival",
        "phase.train.cache_frozen_activations",
        CACHED % "lora: {rank: 0, layers: null}, unfreeze: {tie_word_embeddings: true}",
    ),
    ("survival", "phase.lora.rank", CACHED % "lora: {layers: null}"),
    ("survival", "phase.gate.metric", "phase: {data: {taught: null}, gate: {metric: taught_recall}}"),
    (
        "survival",
        "phase.data.taught_wordings",
        "phase: {data: {taught: null, taught_wordings: 4}, gate: {metric: answer_loss}}",
    ),
    ("survival", "phase.data.taught", HUB.replace("table:", "taught: test, table:") % "question: q, answer: a"),
    ("survival", "phase.train.packing", "phase: {train: {packing: true, cache_frozen_activations: true}}"),
    ("survival", "phase.lora.target_modules", "phase: {lora: {target_modules: [q_proj, lm_head]}}"),
    (
        "survival",
        "phase.resources.processes_per_node",
        "phase: {resources: {processes_per_node: 3, gpus_per_node: 2}}",
    ),
    (
        "survival",
        "phase.train.memory_snapshot",
        "phase: {train: {memory_snapshot: true}, resources: {gpus_per_node: 0}}",
    ),
    (
        "survival",
        "phase.evaluate.generate_rows",
        "phase: {evaluate: {generate_rows: 2000000}, data: {heldout_rows: 1000000}}",
    ),
    *(
        (
            "survival",
            "site.env",
            yaml.safe_dump({**ON_CPU, "site": {**ON_CPU["site"], "env": {name: ""}, "caConfigMap": "ca"}}),
        )
        for name in OWN_ENVIRONMENT
        if name != "OMP_NUM_THREADS"
    ),
    *(("survival", "site.env", f"site: {{env: {{{name}: '1'}}}}") for name in (*OVERRIDES, "DATA_DIR", "OUTPUT_DIR")),
    (
        "survival",
        "site.env",
        "{phase: {resources: {gpus_per_node: 0}, model: {dtype: auto}}, site: {env: {OMP_NUM_THREADS: '4'}}}",
    ),
    (
        "survival",
        "site.env",
        "{phase: {serve: {gpus: 0}}, site: {env: {OMP_NUM_THREADS: '4'}, images: {vllm: 'a/b:c'}}}",
    ),
    ("survival", "site.auth", "site: {serving: false, auth: true}"),
    ("survival", "site.auth", "site: {platform: kubernetes, auth: true}"),
    ("survival", "site.hardwareProfile.name", "site: {serving: false, hardwareProfile: {name: a}}"),
    ("survival", "site.hardwareProfile.name", "site: {platform: kubernetes, hardwareProfile: {name: a}}"),
    ("survival", "site.hardwareProfile.namespace", "site: {hardwareProfile: {namespace: a}}"),
    ("survival", "site.expose.enabled", "site: {serving: false, expose: {enabled: true, host: a}}"),
    ("survival", "site.monitoring.enabled", "site: {serving: false, monitoring: {enabled: true}}"),
    *(
        ("survival", f"site.expose.{key}", f"site: {{expose: {{{key}: a}}}}")
        for key in ("host", "ingressClass", "tlsSecret")
    ),
    ("survival", "site.expose.annotations", "site: {expose: {annotations: {a: b}}}"),
    ("survival", "site.tensorboard.host", "site: {tensorboard: {host: a}}"),
    ("survival", "site.tensorboard.host", "site: {tensorboard: {enabled: true, host: a}}"),
    (
        "survival",
        "site.tensorboard.host",
        "site: {platform: openshift, auth: true, expose: {enabled: true}, tensorboard: {enabled: true, host: a}}",
    ),
    ("survival", "site.step", "site: {step: prepare}"),
    ("survival", "site.monitoring.labels", "site: {monitoring: {labels: {a: b}}}"),
    ("survival", "site.gpuResource", "site: {gpuResource: gpu}"),
    ("survival", "site.gpuResource", "site: {gpuResource: " + "\u00e9" * 3000 + "}"),
    ("survival", "site.images.trainer", "site: {images: {trainer: foo bar}}"),
    ("survival", "site.images.vllm", "site: {images: {vllm: foo bar}}"),
    ("survival", "site.images.vllm", "phase: {serve: {gpus: 0}}"),
    ("survival", "site.images.vllm", 'site: {images: {vllm: ""}}'),
    ("survival", "site.storage.models.subPath", "site: {storage: {models: {subPath: /models}}}"),
    ("survival", "site.storage.runs.subPath", "site: {storage: {runs: {subPath: a/../b}}}"),
    ("survival", "site.storage.data.subPath", "site: {storage: {data: {existing: c, subPath: a b}}}"),
    ("survival", "site.storage.data.subPath", "site: {storage: {data: {subPath: a}}}"),
    ("survival", "site.storage.data.accessMode", "site: {storage: {data: {accessMode: ReadWriteOnce}}}"),
    ("survival", "site.storage.models.accessMode", "site: {storage: {models: {accessMode: ReadWriteOnce}}}"),
    ("survival", "site.storage.runs.accessMode", "site: {storage: {runs: {accessMode: ReadWriteOnce}}}"),
    ("survival", "site.storage.data.accessMode", "site: {storage: {data: {size: 1Gi, accessMode: ReadWriteOnce}}}"),
    ("survival", "site.storage.data.accessMode", "site: {storage: {data: {existing: a, accessMode: ReadWriteOnce}}}"),
]
"""Values file, key and overlay for each row of config/rules.py."""
OF_HEADS = "hidden96-layers2-heads4-kv2-mlp64-vocab512-context2048"
COMPUTED = [
    ("survival", "site.env", "site: {env: {HTTP-PROXY: a}}"),
    ("survival", "site.env", "site: {env: {1A: a}}"),
    ("survival", "site.podLabels", "site: {podLabels: {a: b, trainlab.dev/run: c}}"),
    ("survival", "site.podLabels", "site: {podLabels: {app.kubernetes.io/name: c}}"),
    ("survival", "phase.evaluate.tasks", "phase: {evaluate: {tasks: [arc_easy, gsm8k, hellaswag, gsm8k]}}"),
    ("survival", "phase.resources.shared_memory", "phase: {resources: {memory: 1000Mi, shared_memory: 1Gi}}"),
    ("survival", "phase.resources.shared_memory", 'phase: {resources: {memory: "1000000000", shared_memory: 1.1G}}'),
    ("staged-pretrain", "phase.stage.curriculum", "phase: {stage: {curriculum: [{length: 300, share: 1}]}}"),
    ("staged-pretrain", "phase.stage.curriculum", "phase: {stage: {curriculum: [{length: 512, share: 0.5}]}}"),
    (
        "staged-pretrain",
        "phase.stage.curriculum",
        "phase: {stage: {curriculum: [{length: 1024, share: 0.5}, {length: 512, share: 0.5}]}}",
    ),
    *(
        ("staged-pretrain", key, f"phase: {{model: {{source: 'init:llama-{size}'}}}}")
        for key, size in (
            ("phase.model.source", "hidden100-layers2-heads3-kv1-mlp64-vocab512-context4096"),
            ("phase.model.source", "hidden96-layers2-heads6-kv4-mlp64-vocab512-context4096-tied"),
            ("phase.model.max_length", "hidden96-layers2-heads6-kv2-mlp64-vocab512-context1024"),
        )
    ),
    ("staged-dpo", "phase.serve.gpus", f"phase: {{serve: {{gpus: 3}}, model: {{source: 'parent:llama-{OF_HEADS}'}}}}"),
    ("staged-dpo", "phase.serve.gpus", f"phase: {{serve: {{gpus: 6}}, model: {{source: 'parent:llama-{OF_HEADS}'}}}}"),
    (
        "staged-dpo",
        "phase.serve.max_tokens",
        f"phase: {{serve: {{max_tokens: 1025}}, model: {{source: 'parent:llama-{OF_HEADS}'}}}}",
    ),
    ("survival", "site.gpuResource", "site: {gpuResource: nvidia.com/mig-1g.10gb}"),
    ("staged-pretrain", "site.gpuResource", "site: {gpuResource: nvidia.com/gpu.shared, spread: required}"),
    *(
        (
            "staged-pretrain",
            f"site.nodeSelector {PRODUCT_LABEL}",
            f"site: {{nodeSelector: {{{PRODUCT_LABEL}: {product}}}}}",
        )
        for product in ("NVIDIA-L40S-SHARED", "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb")
    ),
]
"""The same for config/rule.py, except for Python's regular expressions, which Helm cannot read."""
MISSING = [
    ("survival", "phase.stage.name", "phase: {stage: {fsdp: false}}"),
    ("staged-dpo", "phase.stage", "phase: {stage: null}"),
]
FORMS = rules()["forms"]
BY_RECIPE = [
    (phase, key, "{{phase: {{{}: {{{}: other}}}}}}".format(*key.split(".")[1:]))
    for recipe, phase in OF_RECIPE.items()
    for key in FORMS[recipe]
    if not (phase == "survival" and ".stage." in key)
]
"""What one recipe accepts and another does not."""
EVERY = sorted(
    {(block, key) for keys in allowed_keys()["phase"].values() for block in keys for key in _keys(keys[block])}
)
NOT_READ = [
    (OF_RECIPE[recipe], f"phase.{block}.{key}" if block in keys else f"phase.{block}", _overlay(block, key))
    for recipe, keys in allowed_keys()["phase"].items()
    for block, key in EVERY
    if key not in _keys(keys.get(block)) and (block in keys or key == min(two for one, two in EVERY if one == block))
]
"""Keys, and whole blocks, that a recipe does not read."""
REFUSED = UNKNOWN + BROKEN + COMPUTED + MISSING


def _sentences(stderr: str) -> list[str]:
    return stderr.split("refused.yaml:2:10): ", 1)[1].split("\n\n")[0].splitlines()


@pytest.mark.parametrize(("phase", "key", "text"), REFUSED, ids=[f"{phase}-{key}" for phase, key, _ in REFUSED])
def test_helm_says_the_sentence_of_the_check(phase: str, key: str, text: str, tmp_path: Path) -> None:
    full, file = str(VALUES / f"{phase}.yaml"), tmp_path / "wrong.yaml"
    file.write_text(text, encoding="utf-8")
    done, told = template((full, str(file))), check(full, str(file))
    assert done.returncode != 0 and told.returncode == 2
    sentences = _sentences(done.stderr)
    expected = [sentence for sentence in sentences if sentence.startswith((f"{key}: ", f"{key} is '"))]
    of_rules = (phase, key, text) in (*BROKEN, *COMPUTED)
    assert expected and all(one in told.stderr for one in (sentences if of_rules else expected[:1]))


def _merged(texts: Iterable[str]) -> str:
    """Return one overlay with the keys of all; two that set different keys of one block set both."""
    blocks: dict[str, dict[str, object]] = {}
    for text in texts:
        for block, keys in yaml.safe_load(text)["phase"].items():
            blocks.setdefault(block, {}).update(keys if isinstance(keys, dict) else {"": keys})
    return yaml.safe_dump({"phase": {block: keys.get("", keys) for block, keys in blocks.items()}})


@pytest.mark.parametrize("rows", [BY_RECIPE, NOT_READ], ids=["values", "keys"])
@pytest.mark.parametrize("phase", OF_RECIPE.values())
def test_helm_says_each_sentence_of_a_recipe(rows: list[tuple[str, str, str]], phase: str, tmp_path: Path) -> None:
    """One rendering for all that this recipe does not accept and others do; the check's sentences are the same ones."""
    wrong = {key: text for one, key, text in rows if one == phase}
    full, file = str(VALUES / f"{phase}.yaml"), tmp_path / "wrong.yaml"
    file.write_text(_merged(wrong.values()), encoding="utf-8")
    done, told = template((full, str(file))), check(full, str(file))
    assert done.returncode != 0 and told.returncode == 2
    sentences = _sentences(done.stderr)
    for key in wrong:
        expected = [line for line in sentences if line.startswith((f"{key}: ", f"{key} is '"))]
        assert expected and expected[0] in told.stderr, key


@pytest.mark.parametrize("name", HELMS)
def test_one_failure_names_all_mistakes(name: str, tmp_path: Path) -> None:
    """Of keys, rules, what is computed, and the cluster; each begins with its key, and the position names no unrelated template."""
    file = tmp_path / "wrong.yaml"
    file.write_text(
        "phase: {train: {epoch: 3}, lora: {target_modules: [lm_head]}, resources: {shared_memory: 900Gi}}\n"
        "site: {trainingApi: trainjob, images: {trainer: ''}, env: {HOME: a}}\n",
        encoding="utf-8",
    )
    done = template((FULL, str(file)), name=name, served=REAL_CLUSTER)
    said = done.stderr.split("(trainjob/templates/checks/values/refused.yaml:2:10): ", 1)[1].strip().splitlines()
    keys = [
        *("phase.train.epoch", "phase.lora.target_modules", "site.env", "phase.resources.shared_memory"),
        *("site.images.trainer", "site.trainingApi"),
    ]
    assert [one.split(":")[0] for one in said if ": " in one][: len(keys)] == keys, done.stderr


def test_every_rule_is_among_these(tmp_path: Path) -> None:
    """A rule that is added is also tested with Helm."""
    said, file = [], tmp_path / "wrong.yaml"
    for phase, _, text in BROKEN:
        file.write_text(text, encoding="utf-8")
        said.append(check(str(VALUES / f"{phase}.yaml"), str(file)).stderr)
    forms = [re.sub(r"\\{[^}]+\\}", ".+", re.escape(f"{rule.key}: {rule.says}")) for rule in RULES]
    assert [form for form in forms if not any(re.search(form, one) for one in said)] == []
    assert len(forms) > 30


def test_rows_of_a_hub_name_the_same_run_with_and_without_their_defaults(tmp_path: Path) -> None:
    """Ansible passes all keys, a values file few of them."""
    names, files = set(), (tmp_path / "short.yaml", tmp_path / "long.yaml")
    hub = "accept_license: true, columns: {verse: Label, instruction: Instruction}"
    other = "taught: null, label_line: false"
    files[0].write_text(f"phase: {{{GATE}, data: {{{other}, {SET}, table: {{{hub}}}}}}}", encoding="utf-8")
    defaults = "config: null, split: train, fetch_rows: 20000, heldout_fraction: 0.1"
    files[1].write_text(f"phase: {{{GATE}, data: {{{other}, {SET}, table: {{{hub}, {defaults}}}}}}}", encoding="utf-8")
    for file in files:
        done = template((FULL, str(file)))
        assert done.returncode == 0, done.stderr
        names.add(next(line for line in done.stdout.splitlines() if "trainlab.dev/run: " in line))
    assert len(names) == 1


@pytest.mark.parametrize("key", ["name", "recipe", "title", "model", "data"])
def test_a_missing_key_is_named(key: str, tmp_path: Path) -> None:
    whole = yaml.safe_load(Path(FULL).read_text(encoding="utf-8"))
    del whole["phase"][key]
    file = tmp_path / "wrong.yaml"
    file.write_text(yaml.safe_dump(whole), encoding="utf-8")
    for done in (template((str(file),)), check(str(file))):
        assert done.returncode != 0
        assert f"phase.{key}: missing; add it" in done.stderr


def test_no_phase_is_named() -> None:
    done = template(())
    assert done.returncode != 0
    assert "missing" in done.stderr and "phase" in done.stderr
    assert "nil pointer" not in done.stderr


def test_an_unknown_recipe_is_named_even_without_the_schema(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("phase: {recipe: magic}", encoding="utf-8")
    unchecked = helm("template", "demo", str(CHART), "-f", FULL, "-f", str(file), "--skip-schema-validation")
    assert "phase.recipe is 'magic': must be one of" in unchecked.stderr
    for done in (unchecked, template((FULL, str(file))), check(FULL, str(file))):
        assert done.returncode != 0
        assert all(recipe in done.stderr for recipe in ("phase", *PHASES))


@pytest.mark.parametrize("path", ["/", "a//b", "a/", ".", "./a", "..", "a/..", "a\\b", "a,b"])
def test_paths_that_are_no_folder_inside_a_claim(path: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(yaml.safe_dump({"site": {"storage": {"runs": {"subPath": path}}}}), encoding="utf-8")
    for done in (template((FULL, str(file))), check(FULL, str(file))):
        assert done.returncode != 0 and "site.storage.runs.subPath: " in done.stderr
        assert "is not a folder inside a claim; write names of letters" in done.stderr


def test_one_claim_for_one_node_is_refused_for_several(tmp_path: Path) -> None:
    """A shared claim that one node can mount: the rule treats it as two."""
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
        ("phase.train.batch_size", "many", "/phase/train/batch_size': got string, want null or integer"),
        ("phase.recipe", "magic", "/phase/recipe'"),
        ("phase.resources.cpu", "4Gi", "/phase/resources/cpu': '4Gi' does not match pattern"),
        ("phase.resources.cpu", "0m", "/phase/resources/cpu': '0m' does not match pattern"),
        ("phase.resources.memory", "4GB", "/phase/resources/memory': '4GB' does not match pattern"),
        ("site.queue", "Mine", "/site/queue': 'Mine' does not match pattern"),
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


def test_a_name_that_kserve_has_no_host_for() -> None:
    """Of 63 characters is a label of a DNS name at most, and KServe's is RELEASE-predictor-NAMESPACE."""

    def rendered(release: str, *sets: str) -> str:
        values = [word for one in sets for word in ("--set", one)]
        done = helm("template", release, str(CHART), "-n", "n" * 40, "-f", FULL, "-f", str(SITE), *values)
        return done.stderr if done.returncode else ""

    assert not rendered("a" * 12)
    assert (
        f"release name: {'a' * 13} with namespace {'n' * 40} makes {'a' * 13}-predictor-{'n' * 40} of 64 characters, and KServe's "
        "names of hosts hold 63; shorten one of the two, or set site.serving to false"
    ) in rendered("a" * 13)
    assert not rendered("a" * 13, "site.serving=false")


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


@pytest.mark.parametrize("name", HELMS)
def test_an_image_has_to_be_named(name: str) -> None:
    """No registry offers it; `helm lint` is content without."""
    done = template((FULL,), "site.images.trainer=", name=name)
    assert done.returncode != 0
    for words in (
        "site.images.trainer: missing, as no registry offers the trainer image; add -f artifacts/site.yaml",
        "`ansible-playbook -i YOUR_INVENTORY playbooks/image.yml -e image_site_file=artifacts/site.yaml` writes",
        "--set site.images.trainer=REGISTRY/NAME@sha256:DIGEST",
    ):
        assert words in done.stderr
    assert helm("lint", str(CHART), "-f", FULL, name=name).returncode == 0


def test_global_values_of_helm_are_no_unknown_key() -> None:
    assert template((FULL,), "global.x=1").returncode == 0


@pytest.mark.parametrize(
    "key",
    [
        "phase.train.learning_rate=0.0003",
        "phase.train.weight_decay=0.5",
        "phase.evaluate.confidence=0.9",
        "phase.train.epochs=1.5",
    ],
)
def test_a_number_with_a_point_is_given_as_json(key: str) -> None:
    """Helm's --set makes it a string; its own error says what to use instead, and so does values.yaml."""
    command = ("template", "demo", str(CHART), "-f", FULL, "-f", str(SITE))
    as_text = helm(*command, "--set", key)
    name, _, number = key.partition("=")
    said = f"at '/{name.replace('.', '/')}': '{number}' does not match pattern '$ --set makes text of a number with a decimal point"
    assert as_text.returncode and said in as_text.stderr, as_text.stderr
    assert helm(*command, "--set-json", key).returncode == 0


def test_values_say_which_form_of_set_a_value_needs() -> None:
    text = " ".join((CHART / "values.yaml").read_text(encoding="utf-8").replace("#", "").split())
    assert "--set-json phase.train.learning_rate=0.0003" in text and "--set-string" in text


@pytest.mark.parametrize("text", ["0.0003", "", "many", "\n", NO_TEXT])
def test_no_text_is_taken_for_a_number(text: str) -> None:
    assert not re.search(NO_TEXT, text)
