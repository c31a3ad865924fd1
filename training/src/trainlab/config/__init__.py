"""What a phase is: names, types, bounds and help of every field of a values file.

This is the one truth: `make gen` derives the chart's values.schema.json and its README table from it, the pod reads its
phase.json through it, Ansible checks a phase with it. It must not import torch (`trainlab check` runs in 0.5 s).
Field names under `phase:` are snake_case (three languages read them), under `site:` camelCase as Helm users expect.
"""

from typing import Self

from pydantic import model_validator

from trainlab.config import rules
from trainlab.config.phase_fields import NOT_TRAINING, PhaseFields
from trainlab.config.sections import Data, Train, Unfreeze
from trainlab.config.site import Site
from trainlab.config.strict import Strict

__all__ = ["NOT_TRAINING", "Data", "Phase", "Site", "Train", "Unfreeze", "Values"]


class Phase(PhaseFields):
    """A training demo in one section; the hash of what is trained names the run (loading.phase_hash)."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if unfit := rules.conflict(self):
            raise ValueError(unfit)
        return self


class Values(Strict):
    """A whole values file: what is trained (`phase`) and where it runs (`site`)."""

    phase: Phase
    site: Site = Site()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        nodes = self.phase.resources.nodes
        for name, volume in self.site.storage.volumes.items():
            if nodes > 1 and volume.access_mode == "ReadWriteOnce":
                raise ValueError(
                    f"site.storage.{name}.accessMode: ReadWriteOnce with phase.resources.nodes {nodes}: pods on several "
                    "nodes cannot mount it; set ReadWriteMany (and a storageClass that offers it) or nodes 1"
                )
        if self.phase.serve.runtime == "vllm" and not self.site.images.vllm:
            raise ValueError("site.images.vllm: empty with phase.serve.runtime vllm; name vLLM's image")
        return self
