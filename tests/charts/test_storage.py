"""Where models, data sets and runs are: two claims, three, or one with sub-paths, for all that mount them differently."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from trainlab.config.loading import load_values

from charts.rendering import VALUES, Case, Document, case, documents, one, pods, run_of, template, with_service

ONE = (
    *("site.storage.models.existing=team", "site.storage.models.subPath=demo/models"),
    *("site.storage.runs.existing=team", "site.storage.runs.subPath=demo/runs"),
    *("site.storage.data.existing=team", "site.storage.data.subPath=demo/data"),
)
THREE = ("site.storage.data.size=5Gi",)
LAYOUTS = {
    "two": (),
    "three": THREE,
    "one": ONE,
    "one-of-two": ONE[:4],
    "data-with-models": ("site.storage.data.existing=demo-models",),
}
MOUNTING = (
    "survival-local-pytorchjob",
    "lyrics-local-pytorchjob",
    "lyrics-full-trainjob",
    "resnet-full-pytorchjob",
    "staged-dpo-full-trainjob",
)
"""Each template that mounts a volume: both training APIs, our server, with an adapter too, vLLM with an adapter, images, a stage with a parent."""
EACH = pytest.mark.parametrize("given", [case(name) for name in MOUNTING], ids=MOUNTING)
LAYOUT = pytest.mark.parametrize("layout", LAYOUTS)


def laid_out(given: Case, layout: str, name: str = "helm") -> list[Document]:
    """Return the objects of a case with its volumes as a layout says, the InferenceService included."""
    return with_service(documents(template(given.files, f"site.trainingApi={given.api}", *LAYOUTS[layout], name=name)))


def specs(objects: list[Document]) -> Iterator[tuple[str, Document]]:
    """Yield (where, pod spec) of all pods; the server's as KServe creates it, with the claim of storageUri."""
    for where, _, spec in pods(objects):
        yield where, spec
    runtime = one(objects, "ServingRuntime")["spec"]
    uri = one(objects, "InferenceService")["spec"]["predictor"]["model"]["storageUri"]
    claim, _, path = uri.removeprefix("pvc://").partition("/")
    source = {"name": "kserve-pvc-source", "persistentVolumeClaim": {"claimName": claim}}
    mount = {"name": source["name"], "mountPath": "/mnt/models", "readOnly": True} | ({"subPath": path} if path else {})
    (server,) = runtime["containers"]
    server = server | {"volumeMounts": [*server["volumeMounts"], mount]}
    yield "server", {"containers": [server], "volumes": [*runtime["volumes"], source]}


def seen(spec: Document, container: Document) -> dict[str, tuple[str, str, bool]]:
    """Return claim, folder in it and whether it is read-only by the path at which a container sees it."""
    claims = {
        volume["name"]: volume["persistentVolumeClaim"]["claimName"]
        for volume in spec["volumes"]
        if "persistentVolumeClaim" in volume
    }
    return {
        mount["mountPath"]: (claims[mount["name"]], mount.get("subPath", ""), bool(mount.get("readOnly")))
        for mount in container["volumeMounts"]
        if mount["name"] in claims
    }


@EACH
@LAYOUT
def test_no_pod_names_a_claim_twice(given: Case, layout: str) -> None:
    """The kubelet would wait for the second one forever; and each mount has its volume, each volume a mount."""
    for where, spec in specs(laid_out(given, layout)):
        claims = [each["persistentVolumeClaim"] for each in spec["volumes"] if "persistentVolumeClaim" in each]
        names = [claim["claimName"] for claim in claims]
        assert names and len(names) == len(set(names)), where
        containers = spec.get("initContainers", []) + spec["containers"]
        mounted = {mount["name"] for container in containers for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in spec["volumes"]}, where


@EACH
def test_one_claim_with_sub_paths(given: Case) -> None:
    """Nothing is created; each path is the same folder in all pods, and only writers may write."""
    objects = laid_out(given, "one")
    assert "PersistentVolumeClaim" not in {item["kind"] for item in objects}
    models, data, runs = ("team", "demo/models"), ("team", "demo/data"), ("team", "demo/runs")
    trained = 0
    for where, spec in specs(objects):
        (container,) = spec["containers"]
        if "initContainers" in spec:
            trained += 1
            (fetch,) = spec["initContainers"]
            assert seen(spec, fetch) == {"/models": (*models, False), "/data": (*data, False)}, where
            wanted = {"/models": (*models, True), "/data": (*data, True), "/runs": (*runs, False)}
            assert seen(spec, container) == wanted, where
        elif where == "server":
            assert seen(spec, container) == {"/mnt/models": ("team", "", True)}
            words = " ".join(container["command"] + container["args"])
            run = run_of(objects)
            assert f"/mnt/models/demo/runs/{run}" in words and "=/models" not in words
        else:
            assert seen(spec, container) == {"/runs": (*runs, True)}, where
    assert trained


@EACH
def test_three_claims(given: Case) -> None:
    objects = laid_out(given, "three")
    sizes = {
        item["metadata"]["name"]: item["spec"]["resources"]["requests"]["storage"]
        for item in objects
        if item["kind"] == "PersistentVolumeClaim"
    }
    needs = load_values([Path(file) for file in given.files]).phase.needs
    assert sizes == {"demo-models": needs.models, "demo-runs": needs.runs, "demo-data": "5Gi"}
    for where, spec in specs(objects):
        if "initContainers" in spec:
            (fetch,), (train,) = spec["initContainers"], spec["containers"]
            assert seen(spec, fetch)["/data"] == ("demo-data", "", False), where
            assert seen(spec, train)["/data"] == ("demo-data", "", True), where
            for container in (fetch, train):
                assert {"name": "TRAINLAB_DATASETS", "value": "/data"} in container["env"], where


@EACH
def test_where_data_lies_is_no_part_of_the_run(given: Case) -> None:
    names = {run_of(laid_out(given, layout)) for layout in LAYOUTS}
    assert len(names) == 1
    for where, spec in specs(laid_out(given, "two")):
        for container in spec.get("initContainers", []) + spec["containers"]:
            assert "TRAINLAB_DATASETS" not in {item["name"] for item in container["env"]}, where


@LAYOUT
def test_both_helms_lay_out_alike(layout: str) -> None:
    lyrics = case("lyrics-full-trainjob")
    assert laid_out(lyrics, layout, "helm4") == laid_out(lyrics, layout)


def test_the_run_below_a_sub_path_is_what_is_served() -> None:
    """A claim of its own for the runs: KServe mounts the run alone, and the base models stay where they were."""
    files = (str(VALUES / "lyrics.yaml"),)
    objects = with_service(
        documents(template(files, "site.storage.runs.subPath=team/a", "site.storage.models.subPath=m"))
    )
    run = run_of(objects)
    assert (
        one(objects, "InferenceService")["spec"]["predictor"]["model"]["storageUri"] == f"pvc://demo-runs/team/a/{run}"
    )
    (server,) = one(objects, "ServingRuntime")["spec"]["containers"]
    assert {"name": "models", "mountPath": "/models", "subPath": "m", "readOnly": True} in server["volumeMounts"]
    assert "--lora-modules=tuned=/mnt/models/lora_adapter" in server["args"]


@pytest.mark.parametrize(("most", "path", "seen_run"), [(2, "/team/a", "/{run}"), (0, "/team/a/{run}", "")])
def test_our_server_sees_the_other_runs_where_it_answers_by_adapter(most: int, path: str, seen_run: str) -> None:
    files = (str(VALUES / "lyrics.yaml"), str(VALUES / "local" / "lyrics.yaml"))
    settings = ("site.storage.runs.subPath=team/a", f"phase.serve.max_adapters={most}")
    objects = with_service(documents(template(files, *settings)))
    run = run_of(objects)
    model = one(objects, "InferenceService")["spec"]["predictor"]["model"]
    assert model["storageUri"] == f"pvc://demo-runs{path}".format(run=run)
    (server,) = one(objects, "ServingRuntime")["spec"]["containers"]
    assert f"--run-dir=/mnt/models{seen_run}".format(run=run) in server["args"]


def test_adapter_and_base_in_one_claim() -> None:
    """vLLM finds both below the one mount of KServe."""
    objects = laid_out(case("lyrics-full-pytorchjob"), "one")
    run = run_of(objects)
    (server,) = one(objects, "ServingRuntime")["spec"]["containers"]
    assert f"--lora-modules=tuned=/mnt/models/demo/runs/{run}/lora_adapter" in server["args"]
    (model,) = [argument for argument in server["args"] if argument.startswith("--model=")]
    assert model.startswith("--model=/mnt/models/demo/models/hf-microsoft-phi-3-mini")


@pytest.mark.parametrize("missing", ["site.storage.data=null", "site.storage.data.size=null"])
def test_no_third_volume_without_size(missing: str) -> None:
    files = (str(VALUES / "survival.yaml"),)
    claims = [
        item["metadata"]["name"]
        for item in documents(template(files, missing))
        if item["kind"] == "PersistentVolumeClaim"
    ]
    assert claims == ["demo-models", "demo-runs"]
