"""Refuses requests that do not come from this computer's own page.

The socket is bound to 127.0.0.1, so no other computer reaches it. A web page that the user has open could
still try, by a name that leads here or by sending a form across: its Host or Origin gives it away.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

NAMES = {"127.0.0.1", "localhost", "::1"}
POLICY = (
    "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; "
    "base-uri 'none'; frame-ancestors 'none'; form-action 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


class Guard:
    """ASGI middleware: 403 for foreign hosts and origins, and headers that keep the page to itself."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def answer(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *HEADERS]}
            await send(message)

        refused = refusal({key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]})
        if refused is None:
            await self.app(scope, receive, answer)
            return
        await answer(
            {"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain")]}
        )
        await answer({"type": "http.response.body", "body": refused.encode()})


def refusal(headers: dict[str, str]) -> str | None:
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
