"""What each key under `site:` does to the rendering, and what makes a run."""

import json
from pathlib import Path

import pytest
import yaml
from trainlab.config.loading import load_values
from trainlab.config.rules import OWN_ENVIRONMENT
from trainlab.plan import source

from charts.rendering import REAL_CLUSTER, VALUES, Document, documents, one, pods, run_of, template, with_service

FULL = (str(VALUES / "survival.yaml"),)
LOCAL = (*FULL, str(VALUES / "local" / "survival.yaml"))
TRAINJOB = "trainer.kubeflow.org/v1alpha1/TrainJob"


def objects(*sets: str, files: tuple[str, ...] = LOCAL, served: tuple[str, ...] = ()) -> list[Document]:
    """Return the objects of the survival phase with some values changed."""
    return with_service(documents(template(files, *sets, served=served)))


def train_pod(*sets: str, files: tuple[str, ...] = LOCAL, served: tuple[str, ...] = ()) -> Document:
    """Return the spec of the master's pod."""
    result = {where: spec for where, _, spec in pods(objects(*sets, files=files, served=served))}
    return result["PyTorchJob Master"]


def run(*sets: str) -> str:
    """Return the name of the run."""
    return run_of(objects(*sets))


def test_only_what_is_trained_names_the_run() -> None:
    same = run()
    assert same.startswith("demo-") and len(same) == len("demo-") + 8
    assert run("site.images.trainer=other:1", "site.queue=q", "site.storage.runs.size=1Ti") == same
    assert run("phase.train.epochs=7") != same
    assert run("phase.title=x", "phase.questions=[]", "phase.serve.max_tokens=9") == same
    assert run("phase.seed=42", "phase.train.max_grad_norm=1", "phase.gate.min_gain=0") == same, "defaults written out"


def test_a_named_checkpoint_is_another_job_of_the_same_run() -> None:
    """Or an upgrade that names one would leave a job that ended, or trains, as it is."""
    names = []
    for sets in ((), ("phase.train.resume_from=checkpoint-16",), ("phase.train.resume_from=checkpoint-32",)):
        job = one(objects(*sets), "PyTorchJob")
        names.append((job["metadata"]["labels"]["trainlab.dev/run"], job["metadata"]["name"]))
    assert len({run for run, _ in names}) == 1 and len({name for _, name in names}) == 3


@pytest.mark.parametrize("scale", ["", "demo", "local"])
def test_stages_of_one_release_share_the_volumes_and_have_runs_of_their_own(scale: str) -> None:
    claims, runs = set(), set()
    for name in ("staged-pretrain", "staged-sft", "staged-dpo", "staged-lora"):
        files = [VALUES / f"{name}.yaml", *([VALUES / scale / f"{name}.yaml"] if scale else [])]
        found = documents(template(tuple(map(str, files)), release="staged"))
        volumes = [each for each in found if each["kind"] == "PersistentVolumeClaim"]
        claims |= {(each["metadata"]["name"], json.dumps(each["spec"], sort_keys=True)) for each in volumes}
        runs.add(run_of(found))
    assert {name for name, _ in claims} == {"staged-models", "staged-runs"} and len(claims) == 2 and len(runs) == 4


@pytest.mark.parametrize(
    ("served", "api"),
    [
        ((), "PyTorchJob"),
        (REAL_CLUSTER, "PyTorchJob"),
        ((*REAL_CLUSTER, TRAINJOB), "PyTorchJob"),
        (("v1/Pod", "serving.kserve.io/v1beta1", TRAINJOB), "TrainJob"),
    ],
)
def test_auto_takes_trainjob_only_where_there_is_no_pytorchjob(served: tuple[str, ...], api: str) -> None:
    kinds = {item["kind"] for item in objects(served=served)}
    assert kinds & {"PyTorchJob", "TrainJob"} == {api}


@pytest.mark.parametrize(
    ("files", "sets", "labeled"),
    [
        (LOCAL, (), ["PyTorchJob"]),
        (FULL, (), ["PyTorchJob", "InferenceService"]),
        (LOCAL, ("site.platform=openshift",), ["PyTorchJob", "InferenceService"]),
        (FULL, ("site.queue=",), []),
    ],
    ids=["CPU", "GPU", "OpenShift", "none"],
)
def test_queue_is_a_label_of_the_job_and_of_a_server_that_may_be_queued(
    files: tuple[str, ...], sets: tuple[str, ...], labeled: list[str]
) -> None:
    label = "kueue.x-k8s.io/queue-name"
    found = [
        item for item in objects("site.queue=q", *sets, files=files) if label in item["metadata"].get("labels", {})
    ]
    assert [item["kind"] for item in found] == labeled
    assert {item["metadata"]["labels"][label] for item in found} <= {"q"}


def test_gpus_name_the_resource_and_tolerate_its_taint() -> None:
    pod = train_pod("site.gpuResource=amd.com/gpu", files=FULL)
    main, fetch = pod["containers"][0], pod["initContainers"][0]
    assert main["resources"]["limits"]["amd.com/gpu"] == "1" == main["resources"]["requests"]["amd.com/gpu"]
    assert "amd.com/gpu" not in fetch["resources"]["limits"]
    assert pod["tolerations"] == [{"key": "amd.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert "OMP_NUM_THREADS" not in {item["name"] for item in main["env"]}


def test_placement_reaches_training_promotion_and_server() -> None:
    sets = ('site.tolerations=[{"key": "a", "operator": "Exists"}]', "site.nodeSelector.disk=ssd")
    found = objects(*sets, "site.images.pullSecret=s")
    specs = [spec for _, _, spec in pods(found)] + [one(found, "ServingRuntime")["spec"]]
    assert len(specs) == 5
    for spec in specs:
        assert spec["tolerations"] == [{"key": "a", "operator": "Exists"}]
        assert spec["nodeSelector"] == {"disk": "ssd"}
        assert spec["imagePullSecrets"] == [{"name": "s"}]


@pytest.mark.parametrize("where", ["training", "server"])
def test_pods_that_a_selector_may_send_to_gpu_nodes_tolerate_their_taint(where: str) -> None:
    """Those of a phase with GPUs in its training or in its server alone; a volume for one node sends them there, too."""
    only = {
        "training": (FULL, "phase.serve.gpus=0", "phase.serve.runtime=trainlab"),
        "server": (
            LOCAL,
            "phase.serve.gpus=1",
            "phase.serve.runtime=vllm",
            "phase.serve.dtype=bfloat16",
            "site.images.vllm=a/b:1",
        ),
    }
    files, *gpus = only[where]
    for sent in (("site.nodeSelector.gpu=L40S",), ONE_NODE):
        found = objects(*sent, *gpus, files=files)
        specs = {where: spec for where, _, spec in pods(found)}
        assert len(specs) == (3 if sent is ONE_NODE else 4)
        for where, spec in specs.items():
            assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in spec["tolerations"], where


@pytest.mark.parametrize("part", ["nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared"])
def test_a_part_of_a_gpu_tolerates_the_taint_of_its_whole(part: str) -> None:
    """The GPU operator's nodes carry nvidia.com/gpu however their GPUs are sliced or shared."""
    found = train_pod(f"site.gpuResource={part}", "site.spread=required", files=FULL)["tolerations"]
    assert [each["key"] for each in found] == [part, "nvidia.com/gpu"]


ONE_NODE = ("site.storage.runs.accessMode=ReadWriteOnce", "phase.resources.nodes=1")


def wanted_beside(spec: Document) -> Document:
    """Return the selector of the pods beside which a pod has to be."""
    (term,) = spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/hostname" and set(term) == {"topologyKey", "labelSelector"}
    selector: Document = term["labelSelector"]
    return selector


def chosen(selector: Document, labels: Document) -> bool:
    """Tell whether a selector with `NotIn` finds these labels."""
    (rule,) = selector["matchExpressions"]
    assert rule["operator"] == "NotIn"
    return selector["matchLabels"].items() <= labels.items() and labels.get(rule["key"]) not in rule["values"]


@pytest.mark.parametrize("api", ["pytorchjob", "trainjob"])
@pytest.mark.parametrize("files", [LOCAL, FULL], ids=["CPU", "GPU"])
def test_a_claim_for_one_node_keeps_all_pods_that_mount_it_there(files: tuple[str, ...], api: str) -> None:
    """Each finds all of them, itself included, which lets the first one start anywhere; the lease mounts nothing."""
    found = objects(*ONE_NODE, "phase.serve.hours=2", f"site.trainingApi={api}", files=files)
    every = {where: (labels, spec) for where, labels, spec in pods(found)}
    service = one(found, "InferenceService")["metadata"]["labels"]  # KServe gives them to its pods
    every["server"] = (service, one(found, "ServingRuntime")["spec"])
    lease = one(found, "CronJob")["spec"]["jobTemplate"]["spec"]["template"]
    assert len(every) == 4 and "affinity" not in lease["spec"]
    for where, (_, spec) in every.items():
        selector = wanted_beside(spec)
        waits = where == "Job" and files == FULL
        beside = {name for name, (labels, _) in every.items() if chosen(selector, labels)}
        assert beside == set(every) - ({"Job"} if waits else set()), where
        assert not chosen(selector, lease["metadata"]["labels"]), where
    assert "affinity" not in str(objects("phase.resources.nodes=1", files=files))


def test_an_existing_claim_for_one_node_counts_and_the_run_is_the_same() -> None:
    sets = ("site.storage.models.existing=a", "site.storage.models.accessMode=ReadWriteOnce", "phase.resources.nodes=1")
    assert "affinity" in str(objects(*sets))
    assert run(*ONE_NODE) == run("phase.resources.nodes=1")


@pytest.mark.parametrize("api", ["pytorchjob", "trainjob"])
def test_classes_and_annotations_reach_the_pods(api: str) -> None:
    sets = ("site.priorityClass=high", "site.runtimeClass=nvidia", "site.podAnnotations.a\\.b/c=d")
    found = objects(*sets, f"site.trainingApi={api}")
    predictor = one(found, "InferenceService")["spec"]["predictor"]
    training = {where: spec for where, _, spec in pods(found) if where.startswith(("PyTorchJob", "TrainingRuntime"))}
    for spec in (predictor, *training.values()):
        assert (spec["priorityClassName"], spec["runtimeClassName"]) == ("high", "nvidia")
    assert predictor["annotations"] == {"a.b/c": "d"} and training
    text = json.dumps([each for each in found if each["kind"] != "InferenceService"])
    assert text.count('"a.b/c": "d"') == {"pytorchjob": 4, "trainjob": 3}[api]  # training, promotion, test


@pytest.mark.parametrize("api", ["pytorchjob", "trainjob"])
def test_labels_reach_all_pods(api: str) -> None:
    """The lease's too, and the server's; without any no job is made anew."""
    found = objects("site.podLabels.team=a", "phase.serve.hours=1", f"site.trainingApi={api}")
    lease = one(found, "CronJob")["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"]
    predictor = one(found, "InferenceService")["spec"]["predictor"]["labels"]
    labels = [lease, predictor, *(labels for _, labels, _ in pods(found))]
    assert {each.get("team") for each in labels} == {"a"} and len(labels) == {"pytorchjob": 6, "trainjob": 5}[api]


def test_secrets_become_environment_of_who_fetches_trains_and_serves() -> None:
    sets = ('site.envSecrets=["s3", "other"]',)
    pod, server = train_pod(*sets), one(objects(*sets), "ServingRuntime")["spec"]["containers"][0]
    for container in (pod["initContainers"][0], pod["containers"][0], server):
        assert container["envFrom"] == [{"secretRef": {"name": "s3"}}, {"secretRef": {"name": "other"}}]
    assert "envFrom" not in json.dumps([one(objects(*sets), "Job"), *objects()])


def test_a_prepared_account_promotes_without_a_role_of_ours() -> None:
    kinds = {"Role", "RoleBinding", "ServiceAccount"}
    assert kinds <= {each["kind"] for each in objects()}
    found = objects("site.serviceAccount=prepared")
    assert not kinds & {each["kind"] for each in found}
    assert one(found, "Job")["spec"]["template"]["spec"]["serviceAccountName"] == "prepared"


def test_environment_and_certificates_reach_who_needs_them() -> None:
    sets = ("site.env.HTTPS_PROXY=http://p:3128", "site.caConfigMap=trusted")
    found = objects(*sets)
    pod = train_pod(*sets)
    server = one(found, "ServingRuntime")["spec"]["containers"][0]
    fetch, train = pod["initContainers"][0], pod["containers"][0]
    for container in (fetch, train, server):
        assert {"name": "HTTPS_PROXY", "value": "http://p:3128"} in container["env"]
        names = [item["name"] for item in container["env"]]
        assert len(names) == len(set(names))
    (promote,) = one(found, "Job")["spec"]["template"]["spec"]["containers"]
    assert "HTTPS_PROXY" not in {item["name"] for item in promote["env"]}
    (mount,) = [one for one in fetch["volumeMounts"] if one["name"] == "ca"]
    assert {"name": "SSL_CERT_FILE", "value": f"{mount['mountPath']}/ca-bundle.crt"} in fetch["env"]
    assert {"name": "ca", "configMap": {"name": "trusted"}} in pod["volumes"]


def test_each_variable_of_our_own_is_known_as_such() -> None:
    sets = ("site.storage.data.size=1Gi", "site.hfTokenSecret=hf", "site.caConfigMap=ca", 'site.reportTo=["mlflow"]')
    seen: set[str] = set()
    on_cpu = (*sets, "phase.serve.gpus=0", "site.images.vllm=a/vllm-cpu:1")
    for files, settings in ((FULL, sets), (LOCAL, sets), (FULL, on_cpu)):
        for _, _, spec in pods(objects(*settings, files=files)):
            for container in spec.get("initContainers", []) + spec["containers"]:
                seen |= {item["name"] for item in container["env"]}
        for container in one(objects(*settings, files=files), "ServingRuntime")["spec"]["containers"]:
            seen |= {item["name"] for item in container["env"]}
    assert seen == set(OWN_ENVIRONMENT)


@pytest.mark.parametrize(("spread", "how"), [("required", "DoNotSchedule"), ("preferred", "ScheduleAnyway")])
def test_spread_counts_the_training_pods_of_this_run(spread: str, how: str) -> None:
    found = objects(f"site.spread={spread}")
    for where, labels, spec in pods(found):
        if where.startswith("PyTorchJob"):
            (rule,) = spec["topologySpreadConstraints"]
            assert rule["whenUnsatisfiable"] == how
            assert rule["labelSelector"]["matchLabels"].items() <= labels.items()
        else:
            assert labels.get("app.kubernetes.io/component") != "train"
    assert "topologySpreadConstraints" not in train_pod("site.spread=none")


def test_token_is_given_to_the_fetch_alone() -> None:
    pod = train_pod("site.hfTokenSecret=hf")
    (token,) = [item for item in pod["initContainers"][0]["env"] if item["name"] == "HF_TOKEN"]
    assert token["valueFrom"]["secretKeyRef"] == {"name": "hf", "key": "token"}
    assert "HF_TOKEN" not in {item["name"] for item in pod["containers"][0]["env"]}


def test_existing_claims_are_used_and_not_made() -> None:
    found = objects("site.storage.models.existing=shared")
    assert [item["metadata"]["name"] for item in found if item["kind"] == "PersistentVolumeClaim"] == ["demo-runs"]
    assert {"name": "models", "persistentVolumeClaim": {"claimName": "shared"}} in train_pod(
        "site.storage.models.existing=shared"
    )["volumes"]


def test_volumes_stay_unless_told_otherwise() -> None:
    def policies(*sets: str) -> list[str | None]:
        claims = [item for item in objects(*sets) if item["kind"] == "PersistentVolumeClaim"]
        return [item["metadata"].get("annotations", {}).get("helm.sh/resource-policy") for item in claims]

    assert policies() == ["keep", "keep"]
    assert policies("site.keepVolumes=false") == [None, None]


def test_no_serving_leaves_training_alone() -> None:
    kinds = {item["kind"] for item in objects("site.serving=false")}
    assert kinds == {"ConfigMap", "PersistentVolumeClaim", "PyTorchJob", "Pod"}


@pytest.mark.parametrize(
    ("platform", "served", "given"),
    [
        ("auto", REAL_CLUSTER, True),
        ("auto", (*REAL_CLUSTER, "security.openshift.io/v1"), False),
        ("auto", (), False),
        ("kubernetes", (), True),
        ("openshift", REAL_CLUSTER, False),
    ],
)
def test_volume_group_and_vllm_user_only_where_no_openshift_gives_them(
    platform: str, served: tuple[str, ...], given: bool
) -> None:
    found = objects(f"site.platform={platform}", files=FULL, served=served)
    (server,) = one(found, "ServingRuntime")["spec"]["containers"]
    predictor = one(found, "InferenceService")["spec"]["predictor"]
    assert server["securityContext"].get("runAsUser") == (1001 if given else None)
    for spec in (predictor, *(spec for _, _, spec in pods(found))):
        assert spec["securityContext"].get("fsGroup") == (1001 if given else None)


def test_servers_by_runtime() -> None:
    full = objects(files=FULL)
    container = one(full, "ServingRuntime")["spec"]["containers"][0]
    name = one(full, "ServingRuntime")["metadata"]["name"]
    assert container["image"].startswith("docker.io/vllm/")
    assert {"--served-model-name=base", "--lora-modules=tuned=/mnt/models/lora_adapter"} < set(container["args"])
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    service = one(full, "InferenceService")
    assert service["metadata"]["name"] == "demo"
    assert service["metadata"]["annotations"]["serving.kserve.io/deploymentMode"] == "RawDeployment"
    assert service["spec"]["predictor"]["model"]["runtime"] == name
    local = one(objects(), "ServingRuntime")["spec"]["containers"][0]
    assert local["name"] == "kserve-container"
    assert local["command"] == ["trainlab", "serve", "/etc/trainlab/phase.json"]
    assert local["readinessProbe"]["httpGet"]["path"] == "/ready"


@pytest.mark.parametrize(
    ("stage", "sets", "model", "name"),
    [
        ("sft", (), "/mnt/models/best_model", "tuned"),
        ("dpo", (), "/mnt/models/best_model", "tuned"),
        ("dpo", ("phase.serve.weights=base",), "/mnt/models/parent_model", "base"),
        ("lora", (), "/mnt/models/parent_model", "base"),
        ("lora", ("site.storage.runs.existing=both", "site.storage.models.existing=both"), "parent_model", "base"),
    ],
)
def test_vllm_serves_a_stage_from_its_run(stage: str, sets: tuple[str, ...], model: str, name: str) -> None:
    """The base of a stage is the model of the one before, which the run holds."""
    file = str(VALUES / f"staged-{stage}.yaml")
    runtime = one(objects(*sets, files=(file,)), "ServingRuntime")
    args = dict(arg[2:].split("=", 1) for arg in runtime["spec"]["containers"][0]["args"] if "=" in arg)
    assert args["model"].endswith(model) and args["served-model-name"] == name
    if stage == "lora":
        assert args["lora-modules"] == f"tuned={Path(args['model']).parent}/lora_adapter"


@pytest.mark.parametrize(
    ("file", "sets", "seconds"),
    [
        ("survival", (), 1200),
        ("survival", ("phase.serve.memory=200Gi",), 2150),
        ("staged-sft", ("phase.serve.runtime=trainlab", "phase.serve.gpus=0", "phase.serve.memory=80Gi"), 860),
        ("staged-sft", ("phase.serve.runtime=trainlab", "phase.serve.gpus=0", "phase.serve.memory=2Gi"), 300),
    ],
)
def test_a_server_has_the_time_to_read_what_fills_its_memory(
    file: str, sets: tuple[str, ...], seconds: int, tmp_path: Path
) -> None:
    path = VALUES / f"{file}.yaml"
    probe = one(objects(*sets, files=(str(path),)), "ServingRuntime")["spec"]["containers"][0]["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == seconds
    over = tmp_path / "over.yaml"
    serve = {
        name.removeprefix("phase.serve."): yaml.safe_load(value) for name, value in (each.split("=") for each in sets)
    }
    over.write_text(yaml.safe_dump({"phase": {"serve": serve}}), encoding="utf-8")
    assert source.job_of(load_values([path, over]), [path, over]).serve_start_seconds == seconds


@pytest.mark.parametrize(("dtype", "memory", "kept"), [("float32", "16Gi", "4"), ("bfloat16", "3000Mi", "1")])
def test_vllm_on_cpu_computes_as_it_was_scored_and_keeps_to_its_pod(dtype: str, memory: str, kept: str) -> None:
    sets = ("phase.serve.gpus=0", "phase.serve.cpu=1500m", f"phase.serve.memory={memory}", f"phase.model.dtype={dtype}")
    runtime = one(objects(*sets, "site.images.vllm=a/vllm-cpu:1", files=FULL), "ServingRuntime")
    (container,) = runtime["spec"]["containers"]
    assert {f"--dtype={dtype}", "--enforce-eager"} < set(container["args"])
    other = "float32" if dtype == "bfloat16" else "bfloat16"
    on_gpu = ["phase.serve.gpus=1"] * (other == "bfloat16")  # its kernels for adapters take 16 bits
    for served in ("phase.serve.gpus=0", *on_gpu):
        chosen = (*sets, served, f"phase.serve.dtype={other}", "site.images.vllm=a/vllm-cpu:1")
        assert (
            f"--dtype={other}" in one(objects(*chosen, files=FULL), "ServingRuntime")["spec"]["containers"][0]["args"]
        )
    assert "--max-loras=2" in container["args"], (
        "one place for an adapter stays empty: training/tests/models/test_vllm.py"
    )
    assert not [one for one in container["args"] if "tensor-parallel" in one]
    env = {each["name"]: each["value"] for each in container["env"]}
    assert (env["VLLM_CPU_KVCACHE_SPACE"], env["OMP_NUM_THREADS"]) == (kept, "2")
    assert "nvidia.com/gpu" not in container["resources"]["limits"]
    annotations = runtime["metadata"]["annotations"]
    assert annotations["opendatahub.io/template-name"] == "vllm-cpu-x86-runtime-template"
    assert "opendatahub.io/recommended-accelerators" not in annotations


def test_the_dashboard_finds_what_it_reads() -> None:
    full = objects(files=FULL)
    runtime, service = one(full, "ServingRuntime"), one(full, "InferenceService")
    annotations = runtime["metadata"]["annotations"]
    assert annotations["opendatahub.io/template-name"] == "vllm-cuda-runtime-template"
    assert annotations["opendatahub.io/recommended-accelerators"] == '["nvidia.com/gpu"]'
    assert runtime["spec"]["annotations"]["opendatahub.io/kserve-runtime"] == "vllm"
    assert service["metadata"]["annotations"]["opendatahub.io/model-type"] == "generative"
    own = one(objects(), "ServingRuntime")
    assert "opendatahub.io/template-name" not in own["metadata"]["annotations"]
    assert own["spec"]["annotations"] == {"prometheus.io/port": "8080", "prometheus.io/path": "/metrics"}


@pytest.mark.parametrize(
    ("cpu", "processes", "threads"), [("300m", 1, "1"), ("2", 1, "2"), ("1500m", 1, "2"), ("8", 4, "2"), ("1", 4, "1")]
)
def test_threads_follow_the_cpu_request(cpu: str, processes: int, threads: str) -> None:
    text = json.dumps({"cpu": cpu, "processes_per_node": processes, "nodes": 1})
    env = train_pod(f"phase.resources={text}")["containers"][0]["env"]
    assert {"name": "OMP_NUM_THREADS", "value": threads} in env


@pytest.mark.parametrize("api", ["pytorchjob", "trainjob"])
def test_each_rank_knows_its_node(api: str) -> None:
    node = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    found = [spec["containers"][0] for _, _, spec in pods(objects(f"site.trainingApi={api}"))]
    ranks = [node in pod["env"] for pod in found if pod["command"][:2] == ["trainlab", "run"]]
    assert ranks and all(ranks)


def test_time_out_bounds_job_pods_and_promotion() -> None:
    found = objects("phase.resources.timeout_minutes=10")
    assert one(found, "PyTorchJob")["spec"]["runPolicy"]["activeDeadlineSeconds"] == 600
    assert "activeDeadlineSeconds" not in one(found, "Job")["spec"], "it would count while the training is queued"
    assert "--timeout=20" in one(found, "Job")["spec"]["template"]["spec"]["containers"][0]["args"]


@pytest.mark.parametrize("restarts", [0, 3])
def test_time_out_bounds_a_trainjob_that_is_ended_by_sigterm_for_ever(restarts: int) -> None:
    """Code 143 counts against nothing, so only the deadline of JobSet's Job is left; it ends the JobSet, which would begin another."""
    found = objects(
        "site.trainingApi=trainjob", "phase.resources.timeout_minutes=10", f"phase.resources.restarts={restarts}"
    )
    spec = one(found, "TrainingRuntime")["spec"]["template"]["spec"]
    assert [job["template"]["spec"]["activeDeadlineSeconds"] for job in spec["replicatedJobs"]] == [600]
    rules = spec.get("failurePolicy", {}).get("rules", [])
    ends = {each for rule in rules for each in rule["onJobFailureReasons"] if rule["action"] == "FailJobSet"}
    assert ends == ({"PodFailurePolicy", "DeadlineExceeded"} if restarts else set())
