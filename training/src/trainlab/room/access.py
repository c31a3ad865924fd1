"""Who asks, and how often: cookies, limits, headers, and forms as the only thing that is read."""

import secrets
import time
from collections import OrderedDict
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from fastapi import HTTPException, Request, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainlab.room.keys import Key

DEVICE, PRESENTER = "device", "presenter"
"""Purposes of the two cookies."""
MAX_BODY, MAX_FIELDS = 16384, 40  # bytes and fields of a form
PER_DEVICE, PER_ADDRESS = (60.0, 6.0), (600.0, 100.0)
"""Requests at once, and per second from then on: of a phone, and of all that show no cookie from one address, a room's router."""
MAX_KNOWN = 10_000  # buckets kept
YEAR_SECONDS = 31_536_000
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


class Guard:
    """ASGI middleware: limits how often one asks, refuses what other sites send, and sets headers."""

    def __init__(self, app: ASGIApp, key: Key) -> None:
        self._app, self._key = app, key
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                out = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    out.setdefault(name, value)
                out.setdefault("Cache-Control", "no-store")
            await send(message)

        if scope["method"] not in ("GET", "HEAD") and headers.get("sec-fetch-site", "same-origin") not in (
            "same-origin",
            "none",
        ):
            refusal = PlainTextResponse("Another site sent this form; open the room's own page.", 403)
            await refusal(scope, receive, with_headers)
            return
        wait = self._wait(headers, scope)
        if wait:
            text = f"This phone asks too often; try again in {wait} s."
            await PlainTextResponse(text, 429, {"Retry-After": str(wait)})(scope, receive, with_headers)
            return
        await self._app(scope, receive, with_headers)

    def _wait(self, headers: Headers, scope: Scope) -> int:
        """Return in how many seconds the asker may ask again, 0 for now."""
        if scope["path"] == "/health":
            return 0
        device = self._key.read(DEVICE, cookie(headers.get("cookie", ""), cookie_name(self._key, DEVICE)))
        who, (burst, rate) = (device, PER_DEVICE) if device else (f"@{(scope.get('client') or ['?'])[0]}", PER_ADDRESS)
        now = time.monotonic()
        left, at = self._buckets.pop(who, (burst, now))
        left = min(burst, left + (now - at) * rate)
        self._buckets[who] = (max(left - 1, 0.0), now)
        while len(self._buckets) > MAX_KNOWN:
            self._buckets.popitem(last=False)
        return 0 if left >= 1 else max(1, round((1 - left) / rate))


def cookie_name(key: Key, purpose: str) -> str:
    """Return the name of a room's cookie: a browser has the cookies of a host's ports in common, and each may be another room."""
    return f"room_{purpose}_{key.derive('cookie')[:8]}"


def cookie(header: str, name: str) -> str | None:
    """Return the value of a cookie."""
    try:
        morsel = SimpleCookie(header).get(name)
    except CookieError:
        return None
    return morsel.value if morsel else None


def device(request: Request) -> str | None:
    """Return the device that a request comes from, None without a cookie that the room signed."""
    return _signed(request, DEVICE)


def address(request: Request) -> str:
    """Return who asks, for limits: the device, else the address."""
    return device(request) or f"@{request.client.host if request.client else '?'}"


def presenter(request: Request) -> str | None:
    """Return which presenter a request comes from, None for everybody else."""
    return _signed(request, PRESENTER)


def is_presenter(request: Request) -> bool:
    """Say whether the request comes from who opened the secret link."""
    return presenter(request) is not None


def must_present(request: Request) -> None:
    """Raise 404 for everybody else: the page does not say that it exists."""
    if not is_presenter(request):
        raise HTTPException(404, "There is no such page.")


def _signed(request: Request, purpose: str) -> str | None:
    key: Key = request.app.state.room.key
    return key.read(purpose, request.cookies.get(cookie_name(key, purpose)))


def remember(request: Request, response: Response, purpose: str = DEVICE) -> None:
    """Give a browser a cookie, unless it has a good one. SameSite=Lax: a scanned link shows it, another site's form does not."""
    key: Key = request.app.state.room.key
    if _signed(request, purpose) is None:
        secure = request.headers.get("x-forwarded-proto", request.url.scheme) == "https"
        value = key.sign(purpose, secrets.token_hex(12))
        name = cookie_name(key, purpose)
        response.set_cookie(name, value, max_age=YEAR_SECONDS, httponly=True, samesite="lax", secure=secure)


async def form(request: Request) -> dict[str, list[str]]:
    """Return the fields of a form; anything else, uploads included, is refused with 415, a broken one with 400."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind not in ("", "application/x-www-form-urlencoded"):
        raise HTTPException(415, "The room reads forms only; it takes no files.")
    body = await request.body()
    if body and not kind:
        raise HTTPException(415, "The room reads forms only; it takes no files.")
    try:
        text = body.decode("utf-8")
        return parse_qs(text, keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError:
        raise HTTPException(400, "The form cannot be read; reload the page and write it again.") from None


def last(fields: dict[str, list[str]], name: str) -> str:
    """Return the last value of a field: a button's comes after a text's of the same name."""
    return fields.get(name, [""])[-1]
