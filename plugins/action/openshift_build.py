"""Builds an image on OpenShift with a BuildConfig, unless its tag exists, and says what is wrong when it fails.

The tag is a hash of all inputs, so a second run finds it. An interrupted run continues with the build that it started.
With `context` the controller's files are uploaded (as `oc start-build --from-archive` does) or, if the source of the
BuildConfig is a Dockerfile, put into its ConfigMap; without it, the BuildConfig's own source is built.
"""

from __future__ import annotations

import json
from pathlib import Path

from ansible.errors import AnsibleActionFail

from ..plugin_utils import builds
from ..plugin_utils.documented import ClusterAction
from ..plugin_utils.kube import NOT_FOUND, ApiError, Json
from ..plugin_utils.platform_api import failure
from ..plugin_utils.platform_api import title as named
from ..plugin_utils.waiting import ApiRetries, polls

LOG_LINES = 25
REGISTRY_SECONDS = 20.0


class ActionModule(ClusterAction):
    """Applies the BuildConfig, builds unless the tag exists, and watches."""

    OPERATION = "building {namespace}/{name}"

    def run_on_cluster(self, args: Json) -> Json:
        """Build; returns changed, image (REPOSITORY@DIGEST), tag and build (name, empty when none was needed)."""
        self._space, self._name = args["namespace"], args["name"]
        self._config = f"{builds.BUILDS}/namespaces/{self._space}/buildconfigs/{self._name}"
        self._stream = f"{builds.IMAGES}/namespaces/{self._space}/imagestreams/{self._name}"
        files = archive = builds.packed(Path(args["root"]), args["context"]) if args["context"] else b""
        spec = next(each["spec"] for each in args["documents"] if each["kind"] == "BuildConfig")
        if spec["source"]["type"] == "Dockerfile":
            self._inline(args, spec["source"], files)
            archive = b""  # nothing left to upload
        made_of = {key: spec[key] for key in ("source", "strategy")}
        tag = builds.tag(files, json.dumps(made_of, sort_keys=True).encode())
        spec["output"] = {"to": {"kind": "ImageStreamTag", "name": f"{self._name}:{tag}"}}
        if not self.api.serves(builds.BUILD_API, "buildconfigs"):
            raise AnsibleActionFail(
                f"trainlab_image_source is set, but the cluster does not serve {builds.BUILD_API} (it is not OpenShift, or its "
                "capability Build is disabled); set trainlab_image_source to none and site.images.trainer to an image in a registry"
            )
        reference = "" if args["again"] else builds.image_of(self.api.get(self._stream), tag)
        changed = self._apply(args["documents"])
        if reference:
            return {"changed": changed, "image": reference, "tag": tag, "build": ""}
        if self.check:
            return {"changed": True, "image": "", "tag": tag, "build": f"would build {self._name}:{tag}"}
        self._registry()
        running = [
            each
            for each in self._builds()
            if builds.makes(each, self._name, tag) and not self._late(each, args["again"])
        ]
        name = running[-1]["metadata"]["name"] if running else self._start(archive, tag)
        self._watch(name, args["timeout"])
        image = builds.image_of(self.api.get(self._stream), tag)
        if not image:
            raise AnsibleActionFail(
                f"build {name} is complete, but ImageStream {self._name} has no tag {tag}; see `{self.api.oc} -n {self._space} "
                f"describe imagestream {self._name}`, then run the playbook again"
            )
        self.lines.say(f"{self._name}:{tag} is {image}")
        return {"changed": True, "image": image, "tag": tag, "build": name}

    @staticmethod
    def _inline(args: Json, source: Json, files: bytes) -> None:
        """Put the files into the ConfigMap and the Containerfile, the first of `context`, into the source."""
        text = (Path(args["root"]) / args["context"][0]).read_text(encoding="utf-8")
        source["dockerfile"] = builds.inlined(text)
        holder = next(each for each in args["documents"] if each["kind"] == "ConfigMap")
        holder["binaryData"] = builds.carried(holder["metadata"]["name"], files)

    def _apply(self, documents: list[Json]) -> bool:
        changed = False
        for document in documents:
            try:
                changed = self.api.put(document, self.api.current(document), self.check) != "unchanged" or changed
            except ApiError as error:
                if error.status == NOT_FOUND:
                    raise AnsibleActionFail(
                        f"{named(document)}: {error}; run playbooks/workspace.yml first, or set image_namespace"
                    ) from error
                raise failure(error, named(document)) from error
        return changed

    def _registry(self) -> None:
        """The registry gives an ImageStream its repository at once, when there is one."""
        for _poll in polls(
            REGISTRY_SECONDS,
            f"the registry's repository for ImageStream {self._space}/{self._name}",
            f"the cluster's image registry is Removed or has no storage (usual on bare metal): `{self.api.oc} patch "
            'configs.imageregistry.operator.openshift.io cluster --type merge -p \'{"spec": {"managementState": '
            '"Managed"}}\'` with storage set, or set trainlab_image_source to none and site.images.trainer to an image elsewhere',
        ):
            if ((self.api.get(self._stream) or {}).get("status") or {}).get("dockerImageRepository"):
                return

    def _builds(self) -> list[Json]:
        return self.api.items(
            f"{builds.BUILDS}/namespaces/{self._space}/builds", f"openshift.io/build-config.name={self._name}"
        )

    @staticmethod
    def _late(build: Json, again: bool) -> bool:
        """Tell whether a build may have cloned its sources before it was asked for `again`."""
        return again and (build.get("status") or {}).get("phase") == "Running"

    def _start(self, archive: bytes, tag: str) -> str:
        if archive:
            self.lines.say(f"sending {len(archive) / 1024:.0f} KiB of sources")
            made = self.api.upload(f"{self._config}/instantiatebinary", archive)
        else:
            request = {"apiVersion": builds.BUILD_API, "kind": "BuildRequest", "metadata": {"name": self._name}}
            made = self.api.send("POST", f"{self._config}/instantiate", request)
        name, wanted = str(made["metadata"]["name"]), f"{self._name}:{tag}"
        written = (((made.get("spec") or {}).get("output") or {}).get("to") or {}).get("name", wanted)
        if written != wanted:  # the build takes it of the BuildConfig, as that is now
            self.api.patch(f"{builds.BUILDS}/namespaces/{self._space}/builds/{name}", {"status": {"cancelled": True}})
            raise AnsibleActionFail(
                f"BuildConfig {self._space}/{self._name} was changed meanwhile, by another playbook that builds {written}; build {name} is "
                "cancelled, as it would have written there; run the playbook again once the other has ended"
            )
        return name

    def _watch(self, name: str, timeout: float) -> None:
        path = f"{builds.BUILDS}/namespaces/{self._space}/builds/{name}"
        retries = ApiRetries(self.lines)
        for _poll in polls(
            timeout,
            f"build {self._space}/{name}",
            f"see `{self.api.oc} -n {self._space} logs build/{name}`; raise image_timeout, or run the playbook again, without "
            "image_again: it continues with this build",
        ):
            build = retries.ask(lambda: self.api.get(path))
            if build is None:
                continue
            self.lines.changed(f"build {name}", builds.says(build))
            now = builds.phase(build)
            if now == builds.COMPLETE:
                return
            if now in builds.FAILED:
                log = self._log(path) or (build.get("status") or {}).get("logSnippet") or ""
                tail = "\n".join(f"    {line}" for line in log.splitlines()[-LOG_LINES:])
                raise AnsibleActionFail(
                    f"build {self._space}/{name}: {builds.says(build)}; {builds.remedy(build)}"
                    + (f"\nlast lines of its log:\n{tail}" if tail else "")
                )
            if now == "Running":
                last = self._log(path, tailLines=1).strip()
                self.lines.alive(f"build {name}: {last[:160] or 'Running'}")

    def _log(self, build: str, **query: int) -> str:
        try:
            return self.api.text("GET", f"{build}/log", **query)
        except ApiError:  # the pod is gone or has not started: a missing log is no reason to fail
            return ""
