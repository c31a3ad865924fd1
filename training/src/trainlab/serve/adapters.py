"""The adapters of other runs beside the server's own on one model, as many as the phase lets it keep; used by inference_engine.py."""

from collections import OrderedDict
from itertools import count
from typing import Any

from peft import set_peft_model_state_dict

from trainlab.serve.promoted_runs import PromotedRun, Stamp


class Adapters:
    """Adds adapters to a PEFT model and takes them away. Not thread-safe: whoever calls it holds the model's lock."""

    def __init__(self, model: Any, most: int) -> None:
        self._model, self._most = model, most
        self._kept: OrderedDict[str, tuple[Stamp, str]] = OrderedDict()  # the one asked longest ago first
        self._numbers = count()

    @property
    def kept(self) -> list[str]:
        """Runs whose adapters are in memory, the one asked longest ago first."""
        return list(self._kept)

    def select(self, run: PromotedRun) -> None:
        """Let the model answer with the adapter of `run`, loaded unless it is there as it is on the volume now."""
        stamp, adapter = self._kept.get(run.name, (None, ""))
        if stamp != run.stamp:
            weights = run.weights()
            if stamp is not None:
                self._drop(run.name)
            while len(self._kept) >= self._most:
                self._drop(next(iter(self._kept)))
            adapter = self._add(run, weights)
        self._kept.move_to_end(run.name)
        self._model.set_adapter(adapter)

    def _add(self, run: PromotedRun, weights: dict[str, Any]) -> str:
        adapter = f"run{next(self._numbers)}"  # a module's name has no dot, a run's may
        # On no device first, so that its tensors become the model's instead of a copy.
        self._model.add_adapter(adapter, run.config, low_cpu_mem_usage=True, autocast_adapter_dtype=False)
        set_peft_model_state_dict(self._model, weights, adapter_name=adapter, low_cpu_mem_usage=True)
        self._model.eval()
        self._kept[run.name] = run.stamp, adapter
        return adapter

    def _drop(self, name: str) -> None:
        self._model.delete_adapter(self._kept.pop(name)[1])
