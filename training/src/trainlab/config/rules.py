"""What may not be combined in a values file: one rule per row, read by Python here and by Helm as rules.json.

A sentence is `key: reason; remedy`. What a table cannot express is in rule.py. A rule for one recipe needs no
condition on it if a key of its conditions belongs to that recipe alone.
"""

from trainlab.config.inputs import QUESTIONS, VERSES
from trainlab.config.rule import Condition, Rule
from trainlab.config.training import STAGES
from trainlab.config.types import DIGITS, PATH

COLUMNS, HUB, CACHE = "phase.data.hub.columns", "phase.data.hub", "phase.train.cache_frozen_activations"
PREPARE = "phase.text.prepare"
VOLUMES: dict[str, tuple[tuple[Condition, ...], ...]] = {
    "models": ((),),
    "runs": ((),),
    "data": ((("site.storage.data.size", "set", True),), (("site.storage.data.existing", "set", True),)),
}
"""Volume -> when a release has it: if any of these holds."""

_VLLM_ON_CPU: tuple[Condition, ...] = (("phase.serve.runtime", "is", "vllm"), ("phase.serve.gpus", "is", 0))

OWN_ENVIRONMENT: dict[str, tuple[Condition, ...]] = {
    "HOME": (),
    "PYTHONUNBUFFERED": (),
    "OMP_NUM_THREADS": (("phase.resources.gpus_per_node", "is", 0),),
    "USER": (("phase.serve.runtime", "is", "vllm"),),
    "VLLM_NO_USAGE_STATS": (("phase.serve.runtime", "is", "vllm"),),
    "VLLM_CPU_KVCACHE_SPACE": _VLLM_ON_CPU,
    "VLLM_CPU_OMP_THREADS_BIND": _VLLM_ON_CPU,
    "HF_TOKEN": (),
    "HF_HUB_OFFLINE": (),
    "SSL_CERT_FILE": (("site.caConfigMap", "set", True),),
    "NODE_NAME": (),
    "TRAINLAB_DATASETS": (),
    "TRAINLAB_FETCH_ERROR": (),
    "TRAINLAB_RUN": (),
    "TRAINLAB_PROGRESS_PORT": (),
    "TRAINLAB_TERMINATION_MESSAGE": (),
}
"""Variables that the chart's templates set, and when; of two with the same name the API server keeps one."""

OVERRIDES = {
    "EPOCHS": "phase.train.epochs",
    "BATCH_SIZE": "phase.train.batch_size",
    "LEARNING_RATE": "phase.train.learning_rate",
    "LORA_RANK": "phase.lora.rank",
}
"""Variables that often configure training scripts -> the key that `trainlab` sets to their value (loading.py)."""


def _set(key: str) -> Condition:
    return key, "set", True


def _unset(key: str) -> Condition:
    return key, "unset", True


def _several_nodes(volume: str, there: tuple[Condition, ...]) -> Rule:
    key = f"site.storage.{volume}.accessMode"
    return Rule(
        key,
        "ReadWriteOnce with phase.resources.nodes {phase.resources.nodes}: pods on several nodes cannot mount it; set "
        "ReadWriteMany (and a storageClass that supports it) or nodes 1",
        (*there, (key, "is", "ReadWriteOnce"), ("phase.resources.nodes", "is not", 1)),
    )


def _inside(volume: str) -> Rule:
    key = f"site.storage.{volume}.subPath"
    return Rule(
        key,
        f"'{{{key}}}' is not a folder inside a claim; write names of letters, digits, ., _ and - separated by /, none "
        "of them . or .., e.g. team/models",
        (_set(key), (key, "has not form", f"^{PATH}$")),
    )


def _image(name: str) -> Rule:
    key = f"site.images.{name}"
    return Rule(
        key,
        f"'{{{key}}}' is no image reference; write REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:DIGEST",
        (_set(key), (key, "has not form", "^[A-Za-z0-9][A-Za-z0-9._:/@-]*$")),
    )


def _enough(key: str, gpus: int, when: tuple[Condition, ...]) -> Rule:
    needed = {"fsdp": 2, "compile": 1}[key]
    says = f"true with {gpus} GPUs, needs at least {needed}; set false"
    return Rule(f"phase.stage.{key}", says, (_set(f"phase.stage.{key}"), *when))


_ALONE = (("phase.resources.nodes", "is", 1), ("phase.resources.gpus_per_node", "is", 1))
_NO_GPU: tuple[Condition, ...] = (("phase.resources.gpus_per_node", "is", 0),)

RULES: tuple[Rule, ...] = (
    # Sources
    Rule(
        "phase.data.source",
        f"{DIGITS} holds images, but recipe {{phase.recipe}} reads text; name a data set of questions",
        (("phase.data.source", "is", DIGITS), ("phase.recipe", "in", ["sft", "dpo"])),
    ),
    Rule(
        PREPARE,
        "with data.source {phase.data.source}; the blocks are written to the folder that data.source names: set pvc:FOLDER",
        (_set(PREPARE), ("phase.data.source", "starts not", "pvc:")),
    ),
    Rule(
        PREPARE,
        "with stage.tokenizer trained; blocks are made of a tokenizer's tokens before anything is trained: name one with "
        "stage.tokenizer",
        (_set(PREPARE), ("phase.stage.tokenizer", "is", "trained")),
    ),
    Rule(
        HUB,
        "data.source {phase.data.source} does not use this block; remove it",
        (_set(HUB), ("phase.data.source", "starts not", "hf:")),
    ),
    Rule(
        "phase.data.source",
        "{phase.data.source} in stage {phase.stage.name}; hub rows are measured with the model's tokenizer, which a "
        "stage gets from its parent: set a pvc: folder",
        (("phase.recipe", "is", "sft"), ("phase.data.source", "starts", "hf:"), _set("phase.stage.name")),
    ),
    Rule(
        f"{HUB}.accept_license",
        "false with data.source {phase.data.source}; song lyrics are under copyright whatever the data set card says, "
        "and other texts may be; clear the rights to train on them, then set it to true",
        (
            ("phase.recipe", "is", "sft"),
            ("phase.data.source", "starts", "hf:"),
            _unset(f"{HUB}.accept_license"),
        ),
    ),
    *(
        Rule(
            COLUMNS,
            f"{question} and {verse} cannot be combined; name instruction, verse and form, or question and answer",
            (_set(f"{COLUMNS}.{question}"), _set(f"{COLUMNS}.{verse}")),
        )
        for question in QUESTIONS
        for verse in (*VERSES, "form")
    ),
    *(
        Rule(
            COLUMNS,
            f"{one} alone; name {' and '.join(pair)}, or neither if the columns have these names",
            (_set(f"{COLUMNS}.{one}"), _unset(f"{COLUMNS}.{other}")),
        )
        for pair in (VERSES, QUESTIONS)
        for one, other in (pair, pair[::-1])
    ),
    Rule(
        "phase.vision.flip",
        f"true with data.source {DIGITS}; a mirrored digit is a different symbol: set false",
        (_set("phase.vision.flip"), ("phase.data.source", "is", DIGITS)),
    ),
    # Stages
    Rule(
        "phase.model.source",
        "{phase.model.source} in a phase that is not a stage; set stage.name, or name a model",
        (("phase.recipe", "is", "sft"), ("phase.model.source", "starts", "parent:"), _unset("phase.stage.name")),
    ),
    Rule(
        "phase.model.source",
        "{phase.model.source} with stage.parent {phase.stage.parent}; set parent:llama-SIZE",
        (_set("phase.stage.parent"), ("phase.model.source", "starts not", "parent:")),
    ),
    Rule(
        "phase.stage.parent",
        f"{{phase.stage.parent}} does not come before sft; the order is {', '.join(STAGES)}",
        (("phase.stage.name", "is", "sft"), ("phase.stage.parent", "is not", "pretrain")),
    ),
    *(
        Rule(
            "phase.lora.rank",
            f"{{phase.lora.rank}} in stage {stage}; stage lora needs a rank, the others train the model itself",
            (("phase.stage.name", "is", stage), ("phase.lora.rank", test, 0)),
        )
        for stage, test in (("sft", "is not"), ("lora", "is"))
    ),
    Rule(
        CACHE,
        "true in stage {phase.stage.name}, which trains all layers; set false",
        (_set(CACHE), _set("phase.stage.name")),
    ),
    Rule(
        "phase.serve.runtime",
        "vllm in stage {phase.stage.name}, whose base is a run's model; set trainlab",
        (("phase.serve.runtime", "is", "vllm"), _set("phase.stage.name")),
    ),
    Rule(
        "phase.serve.args",
        "{phase.serve.args} with runtime {phase.serve.runtime}; only vllm takes arguments: remove them, or set runtime vllm",
        (_set("phase.serve.args"), ("phase.serve.runtime", "is not", "vllm")),
    ),
    *(
        Rule(
            "phase.serve.weights",
            f"base, but {both} answers as base and tuned side by side; leave it out",
            (("phase.serve.weights", "is", "base"), why),
        )
        for both, why in (
            ("runtime trainlab", ("phase.serve.runtime", "is", "trainlab")),
            ("vllm for a run with adapters", _set("phase.lora.rank")),
        )
    ),
    _enough("fsdp", 0, _NO_GPU),
    _enough("fsdp", 1, _ALONE),
    _enough("compile", 0, _NO_GPU),
    # What is trained
    Rule(
        "phase.unfreeze.tie_word_embeddings",
        "true needs unfreeze.lm_head: true; change one of the two",
        (_set("phase.unfreeze.tie_word_embeddings"), _unset("phase.unfreeze.lm_head")),
    ),
    Rule(
        CACHE,
        "true needs a frozen embedding; set it, or unfreeze.tie_word_embeddings, to false",
        (_set(CACHE), _set("phase.unfreeze.tie_word_embeddings")),
    ),
    Rule(
        "phase.lora.rank",
        "{phase.lora.rank} with train.cache_frozen_activations true; adapters are in every layer, so no layer is "
        "entirely frozen: set lora.layers, or cache_frozen_activations to false",
        (_set(CACHE), _set("phase.lora.rank"), _unset("phase.lora.layers")),
    ),
    Rule(
        "phase.train.packing",
        "true with train.cache_frozen_activations true; the cache holds single rows: set one to false",
        (_set(CACHE), _set("phase.train.packing")),
    ),
    Rule(
        "phase.gate.metric",
        "taught_recall without data.taught; name the wordings to ask, test or dev, or choose another metric",
        (("phase.gate.metric", "is", "taught_recall"), _unset("phase.data.taught")),
    ),
    Rule(
        "phase.data.taught",
        "{phase.data.taught} with data.hub; hub rows have no folder taught: remove one of the two",
        (_set("phase.data.taught"), _set(HUB)),
    ),
    Rule(
        "phase.data.taught_wordings",
        "{phase.data.taught_wordings} without data.taught; name the wordings to ask, test or dev, or remove it",
        (_set("phase.data.taught_wordings"), _unset("phase.data.taught")),
    ),
    Rule(
        "phase.lora.target_modules",
        "names lm_head or embed_tokens; vLLM cannot serve such an adapter: remove them",
        (("phase.lora.target_modules", "holds", ["lm_head", "embed_tokens"]),),
    ),
    # Pods
    Rule(
        "phase.resources.processes_per_node",
        "{phase.resources.processes_per_node} processes for {phase.resources.gpus_per_node} GPUs per pod; set it to "
        "resources.gpus_per_node",
        (
            _set("phase.resources.gpus_per_node"),
            ("phase.resources.processes_per_node", "differs", "phase.resources.gpus_per_node"),
        ),
    ),
    Rule(
        "phase.train.memory_snapshot",
        "true with resources.gpus_per_node 0; only GPU allocations are recorded: set false",
        (_set("phase.train.memory_snapshot"), *_NO_GPU),
    ),
    Rule(
        "phase.evaluate.generate_rows",
        "{phase.evaluate.generate_rows} is more than data.heldout_rows {phase.data.heldout_rows}; lower it",
        (("phase.evaluate.generate_rows", "exceeds", "phase.data.heldout_rows"),),
    ),
    # The site
    *(
        Rule(
            "site.env",
            f"{name} is set by the chart; remove it"
            + (" and name a Secret in site.hfTokenSecret" if name == "HF_TOKEN" else ""),
            (*when, (f"site.env.{name}", "is not", None)),
        )
        for name, when in OWN_ENVIRONMENT.items()
    ),
    *(
        Rule(
            "site.env",
            f"{name} would change what the pods train, not the name of their run; remove it, and set {key}",
            ((f"site.env.{name}", "is not", None),),
        )
        for name, key in (*OVERRIDES.items(), ("DATA_DIR", "phase.data.source"))
    ),
    Rule(
        "site.env",
        "OUTPUT_DIR has no effect, as runs are in their volume; remove it, and set site.storage.runs",
        (("site.env.OUTPUT_DIR", "is not", None),),
    ),
    Rule(
        "site.gpuResource",
        "'{site.gpuResource}' is not an extended resource name; use vendor/resource, e.g. nvidia.com/gpu",
        (("site.gpuResource", "has not form", "^[a-z0-9.-]+/[A-Za-z0-9._-]+$"),),
    ),
    *(
        Rule(
            key,
            "true with site.serving false; nothing is served: change one of the two",
            (_set(key), _unset("site.serving")),
        )
        for key in ("site.auth", "site.expose.enabled", "site.monitoring.enabled")
    ),
    Rule(
        "site.auth",
        "true with site.platform kubernetes; only OpenShift AI checks tokens: set false",
        (_set("site.auth"), ("site.platform", "is", "kubernetes")),
    ),
    *(
        Rule(
            "site.hardwareProfile.name",
            f"{{site.hardwareProfile.name}} {why}; remove it",
            (_set("site.hardwareProfile.name"), condition),
        )
        for why, condition in (
            ("with site.serving false; only a server has a profile", _unset("site.serving")),
            ("with site.platform kubernetes; only OpenShift AI reads it", ("site.platform", "is", "kubernetes")),
        )
    ),
    Rule(
        "site.hardwareProfile.namespace",
        "{site.hardwareProfile.namespace} without site.hardwareProfile.name; name the profile",
        (_set("site.hardwareProfile.namespace"), _unset("site.hardwareProfile.name")),
    ),
    *(
        Rule(
            f"site.expose.{key}",
            f"{{site.expose.{key}}} with site.expose.enabled false; set that to true, or remove it",
            (_set(f"site.expose.{key}"), _unset("site.expose.enabled")),
        )
        for key in ("host", "ingressClass", "tlsSecret")
    ),
    *(
        Rule(
            key,
            f"given with {feature} false; set that to true, or remove {them}",
            (_set(key), _unset(feature)),
        )
        for key, feature, them in (
            ("site.expose.annotations", "site.expose.enabled", "the annotations"),
            ("site.monitoring.labels", "site.monitoring.enabled", "the labels"),
        )
    ),
    # Not the storageClass: a site may name its own for the phases that give the volume a size.
    *(
        Rule(
            f"site.storage.data.{key}",
            f"{{site.storage.data.{key}}} without size and existing, so that the data sets are in the model volume; set one of the two, or "
            f"remove {key}",
            (when, _unset("site.storage.data.size"), _unset("site.storage.data.existing")),
        )
        for key, when in (
            ("subPath", _set("site.storage.data.subPath")),
            ("accessMode", ("site.storage.data.accessMode", "is not", "ReadWriteMany")),
        )
    ),
    Rule(
        "site.env",
        "OMP_NUM_THREADS is set by the chart; remove it",
        (*_VLLM_ON_CPU, ("site.env.OMP_NUM_THREADS", "is not", None)),
    ),
    *(_image(name) for name in ("trainer", "vllm")),
    *(
        Rule(
            "site.images.vllm",
            "'{site.images.vllm}' with phase.serve.gpus 0 is vLLM's image for GPUs; name one for CPU, or set gpus 1",
            (*_VLLM_ON_CPU, ("site.images.vllm", "starts", f"docker.io/vllm/vllm-openai{separator}")),
        )
        for separator in ":@"
    ),
    Rule(
        "site.images.vllm",
        "empty with phase.serve.runtime vllm; name vLLM's image",
        (("phase.serve.runtime", "is", "vllm"), _unset("site.images.vllm")),
    ),
    *(_inside(volume) for volume in VOLUMES),
    *(_several_nodes(volume, there) for volume, any_of in VOLUMES.items() for there in any_of),
)
