"""A validating webhook that nothing answers, like an operator's whose pod has not started; used by operands.py."""

from __future__ import annotations

import socket
import threading

from api_server.client import Client, Json

NAME = "slow.tests.trainlab.rhoai"
TIMES = 2


class SlowWebhook:
    """Lets the creation of a DataScienceCluster time out twice, then goes away."""

    def __init__(self, client: Client) -> None:
        """Block nothing before `step` is told to."""
        self._client = client
        self._called, self._there = 0, False
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        held = []
        while True:
            held.append(self._listener.accept())  # held open, and never answered
            self._called += 1

    def step(self, wanted: bool) -> None:
        """Block while that is wanted and the API server has not waited twice."""
        if not wanted:
            self._called = 0
        wanted = wanted and self._called < TIMES
        if wanted and not self._there:
            self._client.apply(self._configuration())
        elif self._there and not wanted:
            self._client.delete(self._configuration())
        self._there = wanted

    def _configuration(self) -> Json:
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": NAME},
            "webhooks": [
                {
                    "name": NAME,
                    "clientConfig": {"url": f"https://127.0.0.1:{self._listener.getsockname()[1]}/"},
                    "rules": [
                        {
                            "apiGroups": ["datasciencecluster.opendatahub.io"],
                            "apiVersions": ["*"],
                            "operations": ["CREATE"],
                            "resources": ["*"],
                        }
                    ],
                    "timeoutSeconds": 1,
                    "failurePolicy": "Fail",
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                }
            ],
        }
