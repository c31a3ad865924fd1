"""The numbers of one chat server for /metrics, in vLLM's names, so that its dashboards read ours; used by work.py and api.py.

Source: vllm-project/vllm, module vllm.v1.metrics.loggers (prometheus_client appends `_total` to counters).
"""

from collections.abc import Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120, 240, 480)


class Metrics:
    """The numbers of one server, in a registry of their own (tests start several servers)."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own: dict[str, Any] = {"labelnames": ["model_name"], "registry": self.registry}
        self.running = Gauge("vllm:num_requests_running", "Requests that a model is answering.", **own)
        self.waiting = Gauge("vllm:num_requests_waiting", "Requests in line.", **own)
        self.first = Histogram(
            "vllm:time_to_first_token_seconds", "Time to the first text, with the wait in line.", buckets=SECONDS, **own
        )
        self.seconds = Histogram(
            "vllm:e2e_request_latency_seconds",
            "Time to the complete answer, with the wait in line.",
            buckets=SECONDS,
            **own,
        )
        self.prompt_tokens = Counter("vllm:prompt_tokens", "Tokens of the prompts that were read.", **own)
        self.generation_tokens = Counter("vllm:generation_tokens", "Tokens that were generated.", **own)
        self.ended = Counter(
            "vllm:request_success",
            "Requests that have ended: stop, length, abort (the client left) or error.",
            ["model_name", "finished_reason"],
            registry=self.registry,
        )
        # vLLM counts these by path and class of status only (http_requests_total).
        self.requests = Counter(
            "trainlab_requests",
            "Requests that have ended, by model, endpoint and HTTP status; 499: the client left.",
            ["model", "endpoint", "status"],
            registry=self.registry,
        )

    def show(self, models: Sequence[str]) -> None:
        """Report 0 for models that nobody has asked yet."""
        for name in models:
            for metric in (self.running, self.waiting, self.first, self.seconds):
                metric.labels(name)
            self.prompt_tokens.labels(name)
            self.generation_tokens.labels(name)
