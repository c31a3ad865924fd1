"""Every rendered object fits the schema of the true API: the operators' CRDs and Kubernetes' own OpenAPI document.

Both are read from the Go module cache, in the versions that cluster/*/go.mod pin for the embedded cluster, and the operators'
also in the newest that a release of OpenShift AI may bring (upstream.NEWER). Unknown fields are errors, as with `kubectl apply
--validate=strict`. test_dry_run.py asks a real API server the same.
"""

import functools
import json
from typing import Any

import jsonschema
import pytest
import yaml
from rendering import APIS, Case, cases, documents, rendered, template, with_service
from upstream import CRDS, OPENAPI, from_module, from_newer


def strict(node: Any) -> Any:
    """Turn Kubernetes' dialect into JSON schema that refuses unknown fields."""
    if isinstance(node, list):
        return [strict(item) for item in node]
    if not isinstance(node, dict):
        return node
    if node.get("x-kubernetes-int-or-string") or node.get("format") == "int-or-string":
        return {"type": ["integer", "string"]}
    result = {key: value if key in ("default", "enum") else strict(value) for key, value in node.items()}
    if isinstance(node.get("properties"), dict) and node.get("type", "object") == "object":
        if not node.get("x-kubernetes-preserve-unknown-fields") and "additionalProperties" not in node:
            result["additionalProperties"] = False
    return result


@functools.cache
def validator(kind: str, version: str, newer: bool) -> jsonschema.Draft7Validator:
    """Return the validator of a kind (`version` without the group), of the pinned or of the newest operators."""
    if kind in CRDS:
        crd = yaml.load((from_newer if newer else from_module)(*CRDS[kind]), Loader=yaml.CSafeLoader)
        (schema,) = [one["schema"]["openAPIV3Schema"] for one in crd["spec"]["versions"] if one["name"] == version]
        schema = strict(schema)
        schema["properties"].pop("metadata")
        schema["properties"].update(metadata={"type": "object"}, apiVersion={"type": "string"}, kind={"type": "string"})
        return jsonschema.Draft7Validator(schema)
    definitions = openapi()
    (name,) = [name for name in definitions if name.startswith("io.k8s.api.") and name.endswith(f".{version}.{kind}")]
    return jsonschema.Draft7Validator({"$ref": f"#/definitions/{name}", "definitions": definitions})


@functools.cache
def openapi() -> dict[str, Any]:
    """Return Kubernetes' definitions, without unknown fields and with quantities as they are written."""
    definitions: dict[str, Any] = strict(json.loads(from_module(*OPENAPI))["definitions"])
    definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"] = {"type": ["string", "number"]}
    definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"] = {"type": ["string", "integer"]}
    return definitions


def problems(item: dict[str, Any], newer: bool = False) -> list[str]:
    """Return what is wrong with an object, each with its path."""
    checker = validator(item["kind"], item["apiVersion"].split("/")[-1], newer)
    return [
        f"{item['kind']}/{'/'.join(map(str, error.absolute_path))}: {error.message}"
        for error in checker.iter_errors(item)
    ]


@pytest.mark.parametrize("newer", [False, True], ids=["pinned", "newest"])
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_objects_fit_the_true_apis(case: Case, newer: bool) -> None:
    assert not [text for item in with_service(rendered(case)) for text in problems(item, newer)]


@pytest.mark.parametrize("existing", ["team", ""])
@pytest.mark.parametrize("api", APIS)
def test_sub_paths_and_a_third_volume_fit_them(api: str, existing: str) -> None:
    (case,) = [one for one in cases() if one.name == f"gemma-local-{api}"]
    sets = [f"site.storage.{name}.subPath=a/{name}" for name in ("models", "runs", "data")]
    sets += [f"site.storage.{name}.existing={existing}" for name in ("models", "runs", "data") if existing]
    found = documents(template(case.files, f"site.trainingApi={api}", "site.storage.data.size=1Gi", *sets))
    assert not [text for item in with_service(found) for text in problems(item)]


def test_this_test_sees_unknown_fields_and_wrong_types() -> None:
    (case,) = [one for one in cases() if one.name == "survival-local-pytorchjob"]
    for item in json.loads(json.dumps(with_service(rendered(case)))):
        if item["kind"] == "PyTorchJob":
            item["spec"]["runPolicy"]["cleanPodPolicies"] = "None"
            item["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]["comand"] = []
            item["spec"]["nprocPerNode"] = 1
            assert len(problems(item)) == 3
        if item["kind"] == "Job":
            item["spec"]["template"]["spec"]["containers"][0]["imagePullPolicies"] = "Never"
            assert len(problems(item)) == 1
