"""Refuses requests that do not come from this computer's own page.

The socket is bound to 127.0.0.1, so no other computer reaches it. A web page that the user has open could
still try, by a name that leads here or by sending a form across: its Host or Origin gives it away.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

NAMES = {"127.0.0.1", "localhost", "::1"}
POLICY = (
    "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; "
    "base-uri 'none'; frame-ancestors 'none'; form-action 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """ASGI middleware: 403 for foreign hosts and origins, and headers that keep the page to itself."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refused = refusal(Headers(scope=scope)) if scope["type"] == "http" else None
        await (self.app if refused is None else PlainTextResponse(refused, 403))(scope, receive, answer)


def refusal(headers: Mapping[str, str]) -> str | None:
    """Why a request with these headers is refused; None if it is not.

    >>> refusal({"host": "127.0.0.1:8000"})
    >>> refusal({"host": "example.org"})
    'This page is for this computer only, and not for example.org.'
    """
    host = headers.get("host", "")
    if _name(f"//{host}") not in NAMES:
        return f"This page is for this computer only, and not for {host or 'nobody'}."
    origin = headers.get("origin")
    if origin is not None and (_name(origin) not in NAMES or urlsplit(origin).netloc != host):
        return f"This page is for itself only, and not for {origin}."
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return "This page is for itself only, and not for other sites."
    return None


def _name(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None
