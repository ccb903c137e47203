"""Limits how many requests a server accepts, and how many pixels it works on at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from thera.errors import ServerBusy


class Admission:
    """Accepts up to `most` requests, and lets those work at once that have up to `pixels` in all.

    Pixels are what memory goes by: responses are held whole while they are made. A request waits while its
    pixels do not fit beside the others'; smaller ones may pass it.
    """

    def __init__(self, most: int, pixels: int) -> None:
        self.most, self.here, self._free = most, 0, pixels
        self._left = asyncio.Condition()

    @asynccontextmanager
    async def work(self, pixels: int) -> AsyncIterator[None]:
        """Waits for its turn to make an image of this many pixels."""
        if self.here >= self.most:
            raise ServerBusy(f"The server has {self.here} requests to do: ask again in a moment.")
        self.here += 1
        try:
            async with self._left:
                await self._left.wait_for(lambda: pixels <= self._free)
                self._free -= pixels
            try:
                yield
            finally:
                self._free += pixels
                async with self._left:
                    self._left.notify_all()
        finally:
            self.here -= 1
