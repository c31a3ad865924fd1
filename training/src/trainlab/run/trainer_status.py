"""Report progress to Kubeflow Trainer, which writes it into `status.trainerStatus` of the TrainJob (feature gate TrainJobStatus).

The address, the CA and the token are in the environment where Trainer 2.2 or later has that gate on (pkg/runtime/framework/plugins/
trainjobstatus of v2.3.0). transformers' KubeflowCallback speaks the same protocol, but only within its own Trainer, which training on
images has not; it says 100 percent before the scores, and divides the time of a resumed process by all steps, so that too little is left.
It adds itself where there is an address, `report_to: none` or not (in transformers 5.23), so it is switched off: with both, the
status changed between their numbers.
"""

import json
import os
import ssl
import threading
import urllib.error
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainlab.progress import Progress

ADDRESS, AUTHORITY, TOKEN = (f"KUBEFLOW_TRAINER_SERVER_{name}" for name in ("URL", "CA_CERT", "TOKEN"))
EVERY, ANSWER = 5.0, 5.0  # seconds between reports, as transformers has them, and until one has to be answered
NOT_TWICE = "DISABLE_KUBEFLOW_INTEGRATION"
LARGEST, LONGEST = 2**31 - 1, 64  # an int32, and characters of a metric, in the CustomResourceDefinition


class TrainerStatus:
    """Reports `progress` every 5 s until `end`, if Trainer wants it; a report that fails is said once and costs nothing else."""

    def __init__(self, progress: Progress) -> None:
        """Start the thread where the environment has an address, in which transformers then sees none; changes `os.environ`."""
        self._progress, self._address = progress, os.environ.get(ADDRESS, "")
        self._over, self._failed = threading.Event(), ""
        self._thread = threading.Thread(target=self._report, name="trainer status", daemon=True)
        if self._address:
            os.environ[NOT_TWICE] = "TRUE"
            self._thread.start()

    def end(self) -> None:
        """Report the end, after the reports before it; at most 10 s where nothing answers."""
        if self._address:
            self._over.set()
            self._thread.join()
            self._send()

    def _report(self) -> None:
        self._send()
        while not self._over.wait(EVERY):
            self._send()

    def _send(self) -> None:
        try:
            _post(self._address, {"trainerStatus": status(self._progress.page())})
        except (OSError, ValueError) as error:
            if not self._failed:
                self._progress.say(
                    f"status.trainerStatus of the TrainJob is not written, training goes on: {self._address}: {error}; where "
                    "NetworkPolicies bound what pods reach, let that port out (workspace_egress_ports)"
                )
            self._failed = str(error)


def status(page: dict[str, Any]) -> dict[str, Any]:
    """Return a page of Progress as Trainer's type TrainerStatus (pkg/apis/trainer/v1alpha1/trainjob_types.go); metrics as in transformers."""
    metrics: dict[str, Any] = {
        "current_step": page["currentStep"],
        "total_steps": page["totalSteps"],
        "current_epoch": page["currentEpoch"],
        **page["trainMetrics"],
        **{f"eval_{name}": value for name, value in page["evalMetrics"].items()},
    }
    left = page["estimatedRemainingSeconds"]
    return {
        "lastUpdatedTime": datetime.now(UTC).isoformat(timespec="seconds"),
        "progressPercentage": page["progressPercentage"],
        **({} if left is None else {"estimatedRemainingSeconds": min(left, LARGEST)}),
        "metrics": [
            {"name": name[:LONGEST], "value": str(value)[:LONGEST]}
            for name, value in metrics.items()
            if value is not None
        ],
    }


def _post(address: str, body: dict[str, Any]) -> None:
    """Send a report; OSError or ValueError where that fails. The token is read each time, because the kubelet renews it."""
    token = Path(os.environ.get(TOKEN, "")).read_text(encoding="utf-8").strip()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(address, json.dumps(body).encode(), headers, method="POST")
    trusted = ssl.create_default_context(cafile=os.environ.get(AUTHORITY) or None)
    within = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusted)
    )  # a Service of the cluster is behind no proxy
    with within.open(request, timeout=ANSWER) as answer:
        answer.read()
