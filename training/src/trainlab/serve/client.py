"""Which models are served, and one question to one of them, over the OpenAI API; used by ask and verify_run. No torch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from trainlab.errors import UserError
from trainlab.serve import caller

ON_REQUEST = "on_request"
"""Field of a model in /v1/models that is loaded when somebody asks it: of another run than the one that is served."""


class Unreachable(UserError):
    """The server cannot be reached, or is not ready yet: worth a retry."""


class NotServed(UserError):
    """The served model does not answer as it should: the check failed, the input was valid."""

    code = 1


@dataclass(frozen=True)
class Answer:
    """What a model said; `tokens` is 0 where the server reports no count."""

    model: str
    text: str
    tokens: int


def chat(url: str, model: str, question: str, *, max_tokens: int | None = None, timeout: float = 300) -> Answer:
    """Return the greedy answer of `model` at the server `url`.

    Raises Unreachable when nothing answers (or with 404 for the whole page, 429, 5xx), UserError for other refusals.
    """
    body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": question}], "temperature": 0}
    if max_tokens is not None:
        body["max_tokens"] = max_tokens
    value = _asked(url, "chat/completions", timeout, lambda address, **how: httpx.post(address, json=body, **how))
    try:
        text = value["choices"][0]["message"]["content"]
        return Answer(model, str(text or "").strip(), int((value.get("usage") or {}).get("completion_tokens") or 0))
    except (KeyError, IndexError, TypeError, AttributeError):
        raise UserError(f"{url}: the answer is not a chat completion; is this the right address?") from None


def models(url: str, timeout: float = 30) -> list[str]:
    """Return the names of the models that the server `url` has loaded; raises as `chat` does, Unreachable also while it lists none."""
    value = _asked(url, "models", timeout, lambda address, **how: httpx.get(address, **how))
    try:
        names = [str(entry["id"]) for entry in value["data"] if not entry.get(ON_REQUEST)]
    except (KeyError, TypeError, AttributeError):
        raise UserError(f"{url}: the answer is not a list of models; is this the right address?") from None
    if not names:
        raise Unreachable(f"{url}: no model is served yet")
    return names


def _asked(url: str, path: str, timeout: float, send: Callable[..., httpx.Response]) -> Any:
    """Return the JSON that `send` gets from /v1/PATH, None if it is none."""
    address = f"{url.rstrip('/').removesuffix('/v1')}/v1/{path}"
    try:
        reply = send(address, timeout=timeout, **caller.options(address))
    except httpx.InvalidURL as error:
        raise UserError(f"--url is {url}: not a valid address ({error}); write it as http://HOST:PORT") from None
    except httpx.UnsupportedProtocol:
        raise UserError(f"--url is {url}: must begin with http:// or https://") from None
    except httpx.TimeoutException:
        raise Unreachable(f"{url}: no answer within {timeout:.0f} s; is the server overloaded?") from None
    except httpx.TransportError as error:
        hint = "start it with `trainlab serve`, or port-forward the service"
        raise Unreachable(f"{url}: cannot be reached ({error}); {hint}") from None
    try:
        value = reply.json()
    except ValueError:
        value = None
    if reply.status_code != 200:
        _refused(url, reply, value)
    return value


def _refused(url: str, reply: httpx.Response, value: Any) -> None:
    """Raise the error for an answer that is not 200."""
    ours = isinstance(value, dict) and isinstance(value.get("error"), dict)
    message = value["error"].get("message") if ours else reply.text[:200].strip()
    text = f"{url}: HTTP {reply.status_code}: {message}"
    again = reply.status_code in (429, 500, 502, 503, 504) or (reply.status_code == 404 and not ours)
    raise (Unreachable if again else UserError)(text)
