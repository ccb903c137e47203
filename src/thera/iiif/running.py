"""Runs the server on a socket: requests that are never finished time out, and SIGTERM ends it in seconds."""

from __future__ import annotations

import asyncio
import copy
import os
import socket
import sys
from typing import Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from .application import create_app
from .server import Server

#: Seconds for a client to send a request's headers, and for requests under way when the server ends.
HEADERS, GRACE = 20.0, 3
#: Requests are told to whoever started the server, and of uvicorn's own messages warnings and errors alone.
LOGGING = copy.deepcopy(uvicorn.config.LOGGING_CONFIG)
LOGGING["formatters"]["access"]["fmt"] = '%(client_addr)s "%(request_line)s" %(status_code)s'
LOGGING["loggers"]["uvicorn"]["level"] = "WARNING"
LOGGING["loggers"]["uvicorn.error"]["level"] = "WARNING"


def run(server: Server, listener: socket.socket, quiet: bool = False) -> None:
    """Answers requests until SIGTERM or Ctrl-C, with a line for each request unless `quiet`."""
    config = uvicorn.Config(
        create_app(server),
        http=Patient,
        log_config=LOGGING,
        access_log=not quiet,
        timeout_graceful_shutdown=GRACE,
    )
    status = 143
    try:
        uvicorn.Server(config).run(sockets=[listener])
    except KeyboardInterrupt:  # which is how it ends
        status = 0
        if not quiet:
            print("\nThe server has ended.")
    finally:
        if not server.idle:
            # A network that runs would keep Python waiting for its thread. Nothing of it is needed any more.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)


class Patient(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """HTTP, but a connection whose next request is not complete within `HEADERS` seconds is closed."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._unwatch()  # a request is being answered
        elif self._deadline is None:
            self._deadline = asyncio.get_running_loop().call_later(HEADERS, self._late)

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        self._deadline = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
