# SPDX-License-Identifier: Apache-2.0
"""JSON in and out of frozen values: every mistake names its field. Python 3.9, standard library only."""

import typing
from enum import Enum
from functools import lru_cache
from itertools import repeat
from typing import Any, Callable, Dict, List, Mapping, Tuple, Type, TypeVar, Union, cast

from vgpuctl.agent.wire.steps import STEPS, Step
from vgpuctl.agent.wire.values import MISSING, fields, is_dataclass

JsonObject = Mapping[str, object]
T = TypeVar("T")
LARGEST = 2**63


class WireError(ValueError):
    """A JSON value has not the shape that was expected; `path` is the field, such as `gpus[0].address`."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path or 'value'}: {message}")
        self.path = path
        self.message = message

    def inside(self, name: str) -> "WireError":
        """Return the same mistake with the path from outside the field or the item `name`."""
        return WireError(_join(name, self.path), self.message)


def get_object(value: object, path: str = "") -> JsonObject:
    """Return `value` when it is a JSON object. Raises WireError."""
    if not isinstance(value, dict):
        raise WireError(path, f"must be an object, not {_kind(value)}")
    return value


def get_str(obj: JsonObject, key: str) -> str:
    """Return a text field. Raises WireError when it is missing or of another type."""
    value = _get(obj, key)
    if not isinstance(value, str):
        raise WireError(key, f"must be text, not {_kind(value)}")
    return value


def get_int(obj: JsonObject, key: str) -> int:
    """Return a whole number field. Raises WireError when it is missing or of another type."""
    value = _get(obj, key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise WireError(key, f"must be a whole number, not {_kind(value)}")
    return value


def get_bool(obj: JsonObject, key: str) -> bool:
    """Return a true-or-false field. Raises WireError when it is missing or of another type."""
    value = _get(obj, key)
    if not isinstance(value, bool):
        raise WireError(key, f"must be true or false, not {_kind(value)}")
    return value


def get_list(obj: JsonObject, key: str) -> List[object]:
    """Return a list field. Raises WireError when it is missing or of another type."""
    value = _get(obj, key)
    if not isinstance(value, list):
        raise WireError(key, f"must be a list, not {_kind(value)}")
    return value


def from_json(cls: Type[T], value: object, path: str = "") -> T:
    """Build the dataclass `cls` from a JSON object.

    Missing fields take their default; a missing field without one, an unknown field and a wrong type raise
    WireError with the field's path.
    """
    if not is_dataclass(cls):
        raise TypeError(f"{cls!r} is not a dataclass")
    return cast("T", _read(_reader_of(cls), value, path))


def to_json(value: object) -> Any:
    """Turn frozen values into what `json.dumps` takes; tuples become lists, None stays, steps carry their op."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, STEPS):
        return {"op": value.op, **{name: to_json(getattr(value, name)) for name in _written(value)}}
    if is_dataclass(value):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    raise TypeError(f"{_kind(value)} cannot travel as JSON")


def _written(step: Any) -> List[str]:
    """Name the fields of a step that travel: without those of `since`, which older agents do not know, while None."""
    later = getattr(step, "since", ())
    return [field.name for field in fields(step) if field.name not in later or getattr(step, field.name) is not None]


def step_to_json(step: Step) -> Dict[str, Any]:
    """Turn a step into its wire form, `{"op": OP, **fields}`."""
    wire: Dict[str, Any] = to_json(step)
    return wire


def step_from_json(value: object, path: str = "") -> Step:
    """Read a step from its wire form. Raises WireError, for an unknown op too."""
    return cast("Step", _read(_read_step, value, path))


_Reader = Callable[[Any], object]
"""Turns a JSON value into one of ours. Raises WireError with the path from there on."""


def _read(reader: _Reader, value: object, path: str) -> object:
    try:
        return reader(value)
    except WireError as wrong:
        raise wrong.inside(path) from None


@lru_cache(maxsize=None)
def _reader_of(hint: Any) -> _Reader:
    """Work out once how the values of a type are read: a host's facts are thousands of values of a few types."""
    origin = typing.get_origin(hint)
    if hint == Step:
        return _read_step
    if origin is Union:
        return _reader_of_optional(hint)
    if origin is tuple:
        return _reader_of_tuple(typing.get_args(hint))
    if is_dataclass(hint):
        return _reader_of_class(cast("Type[Any]", hint))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _reader_of_enum(hint)
    return _reader_of_plain(hint)


def _read_step(value: Any) -> object:
    obj = dict(get_object(value))
    op = obj.pop("op", None)
    for cls in STEPS:
        if cls.op == op:
            return _reader_of(cls)(obj)
    raise WireError("op", f"{op!r} is none of {', '.join(cls.op for cls in STEPS)}")


def _reader_of_class(cls: Type[Any]) -> _Reader:
    hints = typing.get_type_hints(cls)
    known = fields(cls)
    readers = {field.name: _reader_of(hints[field.name]) for field in known}
    required = [field.name for field in known if field.default is MISSING and field.default_factory is MISSING]

    def read(value: Any) -> object:
        arguments: Dict[str, object] = {}
        for key, item in get_object(value).items():
            reader = readers.get(key)
            if reader is None:
                raise WireError(str(key), f"{cls.__name__} has no such field")
            try:
                arguments[key] = reader(item)
            except WireError as wrong:
                raise wrong.inside(key) from None
        for name in required:
            if name not in arguments:
                raise WireError(name, "is missing")
        return cls(**arguments)

    return read


def _reader_of_optional(hint: Any) -> _Reader:
    choices = typing.get_args(hint)
    others = [choice for choice in choices if choice is not type(None)]
    if len(others) != 1 or len(choices) != 2:
        raise TypeError(f"only Optional is understood, not {hint}")
    reader = _reader_of(others[0])
    return lambda value: None if value is None else reader(value)


def _reader_of_tuple(items: Tuple[Any, ...]) -> _Reader:
    is_open = len(items) == 2 and items[1] is Ellipsis
    readers = [_reader_of(hint) for hint in (items[:1] if is_open else items)]

    def read(value: Any) -> object:
        if not isinstance(value, (list, tuple)):
            raise WireError("", f"must be a list, not {_kind(value)}")
        if not is_open and len(items) != len(value):
            raise WireError("", f"must have {len(items)} items, not {len(value)}")
        found: List[object] = []
        for reader, item in zip(repeat(readers[0]) if is_open else readers, value):
            try:
                found.append(reader(item))
            except WireError as wrong:
                raise wrong.inside(f"[{len(found)}]") from None
        return tuple(found)

    return read


def _reader_of_enum(hint: Type[Enum]) -> _Reader:
    def read(value: Any) -> object:
        try:
            return hint(value)
        except ValueError:
            raise WireError("", f"{str(value)[:40]!r} is no {hint.__name__}") from None

    return read


def _reader_of_plain(hint: Any) -> _Reader:
    # Counts, sizes, numbers and times: nothing that travels is below zero, and a database holds 63 bits.
    is_number = hint in (int, float)

    def read(value: Any) -> object:
        if hint is float and type(value) is int:
            value = float(value)
        if type(value) is not hint and (not isinstance(value, hint) or isinstance(value, bool)):
            raise WireError("", f"must be {_NAMES.get(hint, str(hint))}, not {_kind(value)}")
        if is_number and not 0 <= value < LARGEST:
            raise WireError("", f"must be from 0 to 2^63 - 1, not {str(value)[:20]}")
        return value

    return read


def _get(obj: JsonObject, key: str) -> object:
    if key not in obj:
        raise WireError(key, "is missing")
    return obj[key]


def _join(path: str, name: str) -> str:
    return f"{path}{'' if name.startswith('[') else '.'}{name}" if path and name else path or name


def _kind(value: object) -> str:
    return "null" if value is None else _NAMES.get(type(value), type(value).__name__)


_NAMES: Dict[Any, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    tuple: "a list",
    dict: "an object",
}
