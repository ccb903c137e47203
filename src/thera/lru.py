"""The one cache in memory: recently used items, up to a number of bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

Item = TypeVar("Item")


class LRU(Generic[Item]):
    """Recently used items, up to `most` bytes in all. Several threads may use it at once.

    An item counts with its `nbytes`, or with the number that comes with it. One that alone is larger than
    `most` is not kept.

    >>> cache = LRU[str](100)
    >>> cache.put("a", "A", 60); cache.put("b", "B", 60)
    >>> cache.get("a"), cache.get("b"), cache.nbytes
    (None, 'B', 60)
    """

    def __init__(self, most: int) -> None:
        self.most, self.nbytes = most, 0
        self._items: OrderedDict[Hashable, tuple[Item, int]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: Hashable) -> Item | None:
        with self._lock:
            if key not in self._items:
                return None
            self._items.move_to_end(key)
            return self._items[key][0]

    def put(self, key: Hashable, item: Item, nbytes: int | None = None) -> None:
        size = item.nbytes if nbytes is None else nbytes  # type: ignore[attr-defined]
        with self._lock:
            self.nbytes -= self._items.pop(key, (None, 0))[1]
            if size > self.most:
                return
            self._items[key] = item, size
            self.nbytes += size
            self._shrink()

    def resize(self, most: int) -> None:
        """Changes how many bytes are kept, and drops what is too much."""
        with self._lock:
            self.most = most
            self._shrink()

    def _shrink(self) -> None:
        while self.nbytes > self.most:
            self.nbytes -= self._items.popitem(last=False)[1][1]

    def get_or_make(self, key: Hashable | None, make: Callable[[], Item]) -> Item:
        """The item of a key, made now if it is not here. A key of None disables caching."""
        if key is None:
            return make()
        item = self.get(key)
        if item is None:
            item = make()
            self.put(key, item)
        return item

    def discard(self, unwanted: Callable[[Hashable], bool]) -> None:
        """Drops all items whose key is unwanted."""
        with self._lock:
            for key in [key for key in self._items if unwanted(key)]:
                self.nbytes -= self._items.pop(key)[1]
