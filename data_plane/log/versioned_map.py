"""A map of which a frozen view is taken at once, however large it is.

    freeze()            │ older layers, never touched while a view is open │
    own(k), m[k] = v ──►│ live: what has changed since                     │
    the views closed ──►│ what has changed moves down, a few entries with each change

A view is read by a worker thread while the loop goes on changing the map. Changes go to a new layer
on top; a value that a view may show is copied before it is changed (`own`). Once all views are
closed the layers become one again, MOVED_PER_CHANGE entries with every change, so that no call is
ever proportional to the map. Where a view is always open, those above the oldest one are copied
into one, as slowly, when there are more than LAYERS_MAX: a look-up goes through all of them.

Invariants
- What an open view shows never changes.
- Everything but iterating over a view runs on the loop.
- In steady state there is one layer, and a look-up costs that of a dict.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from itertools import islice
from typing import Any, Generic, Protocol, Self, TypeVar, overload


class Copyable(Protocol):
    """A value that can be changed in place."""

    def copy(self) -> Self: ...


K = TypeVar("K")
V = TypeVar("V", bound=Copyable)
Default = TypeVar("Default")

# More than one, so that moving comes to its end however much is changed meanwhile.
MOVED_PER_CHANGE = 8
# Older ones, before those above the oldest one are copied into one.
LAYERS_MAX = 8


class FrozenView(Generic[K, V]):
    """The map as it was. Iterate in any thread; `close` on the loop."""

    __slots__ = ("_layers", "_map", "is_open")

    def __init__(
        self, versioned: VersionedMap[K, V], layers: tuple[dict[K, V | None], ...]
    ) -> None:
        self._map = versioned
        self._layers = layers
        self.is_open = True

    def items(self) -> Iterator[tuple[K, V]]:
        """All entries, in no order."""
        layers = self._layers
        for index, layer in enumerate(layers):
            newer = layers[index + 1 :]
            for key, value in layer.items():
                if value is not None and not any(key in one for one in newer):
                    yield key, value

    def close(self) -> None:
        """Nobody looks any more."""
        if self.is_open:
            self.is_open = False
            self._layers = ()
            self._map.view_closed()


class _Copying(Generic[K, V]):
    """Layers that nobody changes, the newest last, on their way to become one."""

    __slots__ = ("_entries", "merged", "sources")

    def __init__(self, sources: list[dict[K, V | None]]) -> None:
        self.sources = sources
        self.merged: dict[K, V | None] = {}
        self._entries = (entry for layer in reversed(sources) for entry in layer.items())

    def copy_some(self) -> bool:
        """Whether that was all."""
        copied = 0
        for key, value in islice(self._entries, MOVED_PER_CHANGE):
            # A newer layer may have had it.
            self.merged.setdefault(key, value)
            copied += 1
        return copied < MOVED_PER_CHANGE


class VersionedMap(MutableMapping[K, V]):
    """See the module. Values are never None."""

    __slots__ = ("_copying", "_count", "_older", "live", "open_views")

    def __init__(self) -> None:
        # The newest layer; for hot paths, which look here first. None: gone since an older layer.
        self.live: dict[K, V | None] = {}
        self._older: list[dict[K, V | None]] = []
        self._copying: _Copying[K, V] | None = None
        self._count = 0
        self.open_views = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[K]:
        if not self._older:
            return iter(self.live)
        return (key for key, _ in self._all())

    def _all(self) -> Iterator[tuple[K, V]]:
        return FrozenView(self, (*self._older, self.live)).items()

    def __contains__(self, key: Any) -> bool:
        return self.get(key) is not None

    def __getitem__(self, key: K) -> V:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: V) -> V: ...
    @overload
    def get(self, key: K, default: Default) -> V | Default: ...
    def get(self, key: K, default: Any = None) -> Any:
        """The value, to be looked at only."""
        value = self.live.get(key)
        if value is None and self._older and key not in self.live:
            for layer in reversed(self._older):
                if key in layer:
                    value = layer[key]
                    break
        return default if value is None else value

    def own(self, key: K) -> V | None:
        """The value, to be changed in place."""
        value = self.live.get(key)
        if self._older:
            self._move_down()
            if value is None:
                value = self.get(key)
                if value is not None and self.open_views:
                    value = self.live[key] = value.copy()
        return value

    def __setitem__(self, key: K, value: V) -> None:
        if self.get(key) is None:
            self._count += 1
        self.live[key] = value
        if self._older:
            self._move_down()

    def __delitem__(self, key: K) -> None:
        if self.get(key) is None:
            raise KeyError(key)
        self._count -= 1
        if self._older:
            self.live[key] = None
            self._move_down()
        else:
            del self.live[key]

    def clear(self) -> None:
        """Forget everything. Open views keep what they show."""
        self.live = {}
        self._older = []
        self._copying = None
        self._count = 0

    def freeze(self) -> FrozenView[K, V]:
        """What the map holds now."""
        if self.live:
            self._older.append(self.live)
            self.live = {}
        self.open_views += 1
        return FrozenView(self, tuple(self._older))

    def view_closed(self) -> None:
        """One of its views tells that it is closed."""
        self.open_views -= 1

    @property
    def layers_count(self) -> int:
        return len(self._older) + 1

    def _move_down(self) -> None:
        """Move some entries of the layer above the oldest one into that."""
        if self.open_views:
            self._copy_together()
            return
        self._copying = None
        oldest = self._older[0]
        is_last = len(self._older) == 1
        upper = self.live if is_last else self._older[1]
        for _ in range(min(MOVED_PER_CHANGE, len(upper))):
            key, value = upper.popitem()
            if value is None:
                oldest.pop(key, None)
            else:
                oldest[key] = value
        if upper:
            return
        if is_last:
            self.live = self._older.pop()
        else:
            del self._older[1]

    def _copy_together(self) -> None:
        """Copy some entries of the layers above the oldest one, if there are too many of them; the
        oldest one may be as large as the map. Views keep those that they have."""
        copying = self._copying
        if copying is None:
            if len(self._older) <= LAYERS_MAX:
                return
            copying = self._copying = _Copying(self._older[1:])
        if copying.copy_some():
            self._older[1 : 1 + len(copying.sources)] = [copying.merged]
            self._copying = None
