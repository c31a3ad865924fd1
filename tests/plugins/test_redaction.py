"""Nothing secret gets into a bundle that people send to others: planted secrets, by key and by form."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.recording import REMOVED, clean, clean_text

WORD = "correct-horse"
"""What must not be found again."""
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\ncorrect-horse\n-----END RSA PRIVATE KEY-----"
JWT = f"eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ{WORD}.{WORD}_sig"


@pytest.mark.parametrize(
    "thing",
    [
        {"token": WORD},
        {"adminPassword": WORD},
        {"clientSecret": WORD},
        {"imagePullSecrets": [{"name": WORD}]},
        {"auth": WORD},
        {"headers": {"Authorization": f"Bearer {WORD}"}},
        {".dockerconfigjson": WORD},
        {"AWS_ACCESS_KEY": WORD},
        {"NVIDIA_KEY": WORD},
        {"apiKey": WORD},
        {"credentials": {"user": WORD}},
        {"env": [{"name": "HF_TOKEN", "value": WORD}]},
        {"deep": [{"er": {"S3_SECRET_KEY": WORD}}]},
        {"password": 12345678},
    ],
)
def test_by_key(thing: dict[str, Any]) -> None:
    """Whatever is below such a key, and the value of an environment variable with such a name."""
    found = json.dumps(clean(thing))
    assert WORD not in found and "12345678" not in found and REMOVED in found


@pytest.mark.parametrize(
    "text",
    [
        f"got {JWT} from the server",
        f"login with sha256~{WORD}",
        PEM,
        json.dumps({"tls.key": PEM}),
        PEM.partition("-----END")[0],
        f"{WORD}\n-----END RSA PRIVATE KEY-----",
        base64.b64encode(PEM.encode()).decode(),
        base64.b64encode(json.dumps({"auths": {"quay.io": {"auth": WORD}}}).encode()).decode(),
        f"cloning https://me:{WORD}@git.example.com/repository",
        f"https://{WORD}@git.example.com",
        f"https://hub.example.com/model?token={WORD}&revision=main",
        f"HF_TOKEN={WORD}",
        f"export NVIDIA_KEY='{WORD}'",
        f"Authorization: Bearer {WORD}",
        f"Authorization: Basic {WORD}",
        f'{{"password": "{WORD}"}}',
        f'{{\\"password\\": \\"{WORD}\\"}}',
        f"--password {WORD} --user me",
        f"secrets: {WORD}",
        f"password=one,{WORD};{WORD}",
        f'{{"password": "one {WORD}, two"}}',
        f'{{\\"password\\": \\"one {WORD}\\"}}',
        f"--api-key='one {WORD}'",
        f"https://me:p@{WORD}@git.example.com",
        f"hf_{WORD.replace('-', '')}0123456789",
        "AKIAIOSFODNN7EXAMPLE",
    ],
)
def test_by_form(text: str) -> None:
    """In messages of conditions, events and logs."""
    found = clean_text(text)
    assert REMOVED in found
    for word in (
        WORD,
        WORD.replace("-", ""),
        base64.b64encode(WORD.encode()).decode()[:8],
        "AKIAIOSF",
        "LS0tLS1CRUdJTi",
    ):
        assert word not in found, found


def test_what_explains_a_failure_stays() -> None:
    """Redaction that removed everything would pass the tests above."""
    for text in (
        'secret "registry" not found',
        "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are available",
        "quay.io/modh/vllm@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "https://github.com/NVIDIA/gpu-operator",
        "torch.cuda.OutOfMemoryError: CUDA out of memory at /opt/trainer@2/x.py",
        "trainlab: step 12 of 40, 913 tokens per second, max_new_tokens=512",
    ):
        assert clean_text(text) == text
    status = {"phase": "Ready", "observedGeneration": 2, "conditions": [{"type": "AuthReady", "status": "True"}]}
    assert clean(status) == status
    assert clean({"automountServiceAccountToken": False, "token": ""}) == {
        "automountServiceAccountToken": False,
        "token": "",
    }
