"""Clients of served models over the OpenAI API: which models there are, one question to one, `trainlab ask`. No torch.

A question goes past the machine's proxy where NO_PROXY says so, with the token and the certificates that two variables name."""

import os
import shutil
import ssl
import textwrap
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import httpx

from trainlab.errors import UserError

NARROW, NARROWEST = 72, 20  # columns of the terminal, and of an answer, below which answers are stacked
TOKEN, CA = "TRAINLAB_TOKEN_FILE", "TRAINLAB_CA_FILE"
"""Variables that name a file: the token to send, the CA certificates that the server's is checked against."""
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
    value = _request(url, "chat/completions", timeout, body)
    try:
        text = value["choices"][0]["message"]["content"]
        return Answer(model, str(text or "").strip(), int((value.get("usage") or {}).get("completion_tokens") or 0))
    except (KeyError, IndexError, TypeError, AttributeError):
        raise UserError(f"{url}: the answer is not a chat completion; is this the right address?") from None


def models(url: str, timeout: float = 30) -> list[str]:
    """Return the names of the models that the server `url` has loaded; raises as `chat` does, Unreachable also while it lists none."""
    value = _request(url, "models", timeout)
    try:
        names = [str(entry["id"]) for entry in value["data"] if not entry.get(ON_REQUEST)]
    except (KeyError, TypeError, AttributeError):
        raise UserError(f"{url}: the answer is not a list of models; is this the right address?") from None
    if not names:
        raise Unreachable(f"{url}: no model is served yet")
    return names


def _request(url: str, path: str, timeout: float, body: dict[str, Any] | None = None) -> Any:
    """Return the JSON that a GET of /v1/PATH, or a POST of `body`, is answered with, None if it is none."""
    address = f"{url.rstrip('/').removesuffix('/v1')}/v1/{path}"
    try:
        method, options = "GET" if body is None else "POST", request_options(address)
        reply = httpx.request(method, address, json=body, timeout=timeout, **options)
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
        _raise_for(url, reply, value)
    return value


def _raise_for(url: str, reply: httpx.Response, value: Any) -> None:
    """Raise the error for an answer that is not 200."""
    ours = isinstance(value, dict) and isinstance(value.get("error"), dict)
    message = value["error"].get("message") if ours else reply.text[:200].strip()
    text = f"{url}: HTTP {reply.status_code}: {message}"
    again = reply.status_code in (429, 500, 502, 503, 504) or (reply.status_code == 404 and not ours)
    raise (Unreachable if again else UserError)(text)


def request_options(url: str) -> dict[str, Any]:
    """Return httpx's arguments for a request to `url`: proxy, token and certificates.

    The token is read each time, as the kubelet rotates it, and never sent over plain HTTP. Raises UserError for files that
    cannot be read.
    """
    from requests.utils import should_bypass_proxies  # httpx ignores subnets in NO_PROXY

    direct = httpx.URL(url).host == "localhost" or should_bypass_proxies(url, no_proxy=None)
    options: dict[str, Any] = {"trust_env": not direct}
    if not url.lower().startswith("https://"):
        return options
    if os.environ.get(TOKEN):
        options["headers"] = {"Authorization": f"Bearer {_token(Path(os.environ[TOKEN]))}"}
    if os.environ.get(CA):
        options["verify"] = _tls(Path(os.environ[CA]))
    return options


def _token(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise UserError(f"{TOKEN} is {path}: {error.strerror}; name a file with a token, or unset it") from None


def _tls(path: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(path))
    except ssl.SSLError:
        reason = "holds no certificate"
    except OSError as error:
        reason = str(error.strerror)
    raise UserError(f"{CA} is {path}: {reason}; name a file of PEM certificates, or unset it")


def ask(question: str, url: str, model: str | None = None) -> int:
    """Ask `model`, or every model that `url` serves, and print what they say; return 0. Raises UserError."""
    names = [model] if model else models(url)
    with ThreadPoolExecutor(len(names)) as threads:
        answers = list(threads.map(lambda name: chat(url, name, question), names))
    print(render(question, answers, shutil.get_terminal_size((100, 24)).columns))
    return 0


def render(question: str, answers: Sequence[Answer], width: int) -> str:
    """Return question and answers as text of at most `width` columns."""
    head = textwrap.fill(question, width)
    titles = [f"{a.model} ({a.tokens} tokens)" if a.tokens else a.model for a in answers]
    column = (width - 3 * (len(answers) - 1)) // len(answers)
    if len(answers) == 1 or width < NARROW or column < NARROWEST:
        blocks = [f"{title}\n{_wrapped(a.text, width)}" for title, a in zip(titles, answers, strict=True)]
        return "\n\n".join([head, *blocks])
    cells = [
        [title, "-" * column, *_wrapped(a.text, column).splitlines()] for title, a in zip(titles, answers, strict=True)
    ]
    rows = zip_longest(*cells, fillvalue="")
    return "\n".join([head, "", *(" | ".join(cell.ljust(column) for cell in row).rstrip() for row in rows)])


def _wrapped(text: str, width: int) -> str:
    """Return `text` in lines of `width`; its own line breaks stay, control characters (terminal codes) do not."""
    clean = "".join(c for c in text if c == "\n" or c.isprintable())
    return "\n".join(textwrap.fill(line, width) for line in clean.splitlines()) or "(empty answer)"
