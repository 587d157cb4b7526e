# SPDX-License-Identifier: Apache-2.0
"""Values as JSON text in the store's columns, and back, exactly.

A request or share carries the version of its shape in a column of its own; a row of a newer version is refused, never
read by halves. A request with a field that this vgpuctl does not know is refused too, so that a new field of a request,
which has a default, needs no new version. A new field of a share does.
"""

import dataclasses
import enum
import functools
import typing
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from vgpuctl import typed_json
from vgpuctl.errors import StoreUnusable
from vgpuctl.model.event import Value, Values
from vgpuctl.model.lease import Share
from vgpuctl.model.numa import GuestNuma
from vgpuctl.model.vm import VmRequest

if TYPE_CHECKING:  # what few commands read is imported with the first row of it
    from vgpuctl.agent.wire.facts import HostFacts
    from vgpuctl.model.node_pool import NodePool
    from vgpuctl.model.reservation import Reservation

REQUEST_VERSION = 1
SHARE_VERSION = 2
RESERVATION_VERSION = 1
NODE_POOL_VERSION = 1
_ROWS_KEPT = 4096
"""Values that stay decoded: a command that creates many VMs reads the rows of all others again for each."""

_Value = TypeVar("_Value")


def encode(value: object) -> str:
    """Write a frozen value of the model or the wire as JSON."""
    return msgspec.json.encode(value).decode()


@functools.lru_cache(maxsize=_ROWS_KEPT)
def decode_request(text: str, version: int, *, what: str) -> VmRequest:
    """Read a VM's request. Raises StoreUnusable for a newer version or a damaged row."""
    _check_version(version, REQUEST_VERSION, what=what)
    _check_fields(text, VmRequest, what=what)
    return _decode(text, VmRequest, what=what)


def decode_requests(text: str, version: int, *, what: str) -> tuple[VmRequest, ...]:
    """Read requests that were written together. Raises StoreUnusable for a newer version or a damaged row."""
    _check_version(version, REQUEST_VERSION, what=what)
    _check_fields(text, tuple[VmRequest, ...], what=what)
    return _decode(text, tuple[VmRequest, ...], what=what)


def decode_values(text: str | None, *, what: str) -> Values:
    """Read the values of an event, none for None. Raises StoreUnusable for a damaged row."""
    values: Values = {} if text is None else _decode(text, dict[str, Value], what=what)
    return values


@functools.lru_cache(maxsize=_ROWS_KEPT)
def decode_share(text: str, version: int, *, what: str) -> Share:
    """Read a lease's share. Raises StoreUnusable for a newer version or a damaged row."""
    _check_version(version, SHARE_VERSION, what=what)
    return _decode(text, Share, what=what)


def decode_reservation(text: str, version: int, *, what: str) -> "Reservation":
    """Read a reservation. Raises StoreUnusable for a newer version or a damaged row."""
    from vgpuctl.model.reservation import Reservation

    _check_version(version, RESERVATION_VERSION, what=what)
    return _decode(text, Reservation, what=what)


def decode_node_pool(text: str, version: int, *, what: str) -> "NodePool":
    """Read a node pool, without its secrets. Raises StoreUnusable for a newer version or a damaged row."""
    from vgpuctl.model.node_pool import NodePool

    _check_version(version, NODE_POOL_VERSION, what=what)
    _check_fields(text, NodePool, what=what)
    return _decode(text, NodePool, what=what)


def decode_texts(text: str | None, *, what: str) -> tuple[str, ...]:
    """Read a list of texts, none for None. Raises StoreUnusable for a damaged row."""
    return () if text is None else _decode(text, tuple[str, ...], what=what)


def decode_amounts(text: str | None, *, what: str) -> dict[str, int]:
    """Read whole numbers by name, none for None. Raises StoreUnusable for a damaged row."""
    return {} if text is None else _decode(text, dict[str, int], what=what)


def decode_numa(text: str | None, *, what: str) -> GuestNuma | None:
    """Read a VM's part of the NUMA nodes. Raises StoreUnusable for a damaged row."""
    return None if text is None else _decode(text, GuestNuma, what=what)


class FactsReader:
    """Reads hosts' facts, and keeps the last ones of each host: a run asks many times for facts that did not change."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, HostFacts]] = {}

    def read(self, host: str, text: str) -> "HostFacts":
        """Read the facts of a host. Raises StoreUnusable for a damaged row."""
        from vgpuctl.agent.wire.facts import HostFacts

        known = self._last.get(host)
        if known is None or known[0] != text:
            known = self._last[host] = (text, _decode(text, HostFacts, what=f"facts of host {host}"))
        return known[1]


@functools.cache
def facts_shape() -> str:
    """A fingerprint of the types in a host's facts: cached facts of another shape are read again."""
    import hashlib

    from vgpuctl.agent.wire.facts import HostFacts

    shapes: dict[str, str] = {}
    _add_shape(HostFacts, shapes)
    return hashlib.sha256(repr(sorted(shapes.items())).encode()).hexdigest()[:16]


def _add_shape(kind: Any, shapes: dict[str, str]) -> None:
    """Note a type and those that it is made of, by fields of dataclasses and parts of collections."""
    for part in typing.get_args(kind):
        _add_shape(part, shapes)
    if not isinstance(kind, type) or kind.__qualname__ in shapes:
        return
    if issubclass(kind, enum.Enum):
        shapes[kind.__qualname__] = repr([one.value for one in kind])
    elif dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        fields = {field.name: hints[field.name] for field in dataclasses.fields(kind)}
        shapes[kind.__qualname__] = repr(fields)
        for hint in fields.values():
            _add_shape(hint, shapes)


def plain_text(text: str) -> str:
    """Text that every database takes: NUL and undecodable bytes of a host's answer are written as escapes."""
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()


def _decode(text: str, kind: type[_Value], *, what: str) -> _Value:
    try:
        value: _Value = typed_json.decode(text, kind)
        return value
    except msgspec.MsgspecError as exc:
        raise StoreUnusable(
            f"{what} cannot be read from the store: {exc}",
            hint="the row is damaged, or another program wrote it; restore the store from a backup",
        ) from exc


def _check_fields(text: str, kind: Any, *, what: str) -> None:
    """Refuse a value with a field that this vgpuctl does not know. Damaged text is left to the decoder."""
    try:
        typed_json.decode(text, _shape(kind))
    except msgspec.ValidationError as exc:
        if "unknown field" in str(exc):
            raise StoreUnusable(
                f"{what} cannot be read from the store: {exc}", hint="use the newer vgpuctl that wrote it"
            ) from exc
    except msgspec.MsgspecError:
        pass


@functools.cache
def _shape(kind: Any) -> Any:
    """A type that accepts the fields of a dataclass, and of the dataclasses in it, with any values."""
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        fields = [(field.name, _shape(hints[field.name]) | None, None) for field in dataclasses.fields(kind)]
        return msgspec.defstruct("Shape", fields, forbid_unknown_fields=True)
    parts = typing.get_args(kind)
    shapes = [shape for shape in map(_shape, parts) if shape is not Any]
    if not shapes:
        return Any
    return list[shapes[0]] if typing.get_origin(kind) is tuple else shapes[0]  # type: ignore[valid-type]  # made here


def _check_version(version: int, known: int, *, what: str) -> None:
    if version > known:
        raise StoreUnusable(
            f"{what} has version {version} in the store, this vgpuctl knows version {known}",
            hint="use the newer vgpuctl that wrote it",
        )
