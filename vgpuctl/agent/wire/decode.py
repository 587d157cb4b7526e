# SPDX-License-Identifier: Apache-2.0
"""JSON in and out of frozen values: every mistake names its field. Python 3.9, standard library only."""

import typing
from enum import Enum
from typing import Any, Dict, List, Mapping, Tuple, Type, TypeVar, Union, cast

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
    obj = get_object(value, path)
    if not is_dataclass(cls):
        raise TypeError(f"{cls!r} is not a dataclass")
    known = {field.name: field for field in fields(cls)}
    for key in obj:
        if key not in known:
            raise WireError(_join(path, str(key)), f"{cls.__name__} has no such field")
    hints = typing.get_type_hints(cls)
    arguments: Dict[str, object] = {}
    for name, field in known.items():
        if name in obj:
            arguments[name] = _convert(hints[name], obj[name], _join(path, name))
        elif field.default is MISSING and field.default_factory is MISSING:
            raise WireError(_join(path, name), "is missing")
    return cls(**arguments)


def to_json(value: object) -> Any:
    """Turn frozen values into what `json.dumps` takes; tuples become lists, None stays, steps carry their op."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, STEPS):
        return {"op": value.op, **{field.name: to_json(getattr(value, field.name)) for field in fields(value)}}
    if is_dataclass(value):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    raise TypeError(f"{_kind(value)} cannot travel as JSON")


def step_to_json(step: Step) -> Dict[str, Any]:
    """Turn a step into its wire form, `{"op": OP, **fields}`."""
    wire: Dict[str, Any] = to_json(step)
    return wire


def step_from_json(value: object, path: str = "") -> Step:
    """Read a step from its wire form. Raises WireError, for an unknown op too."""
    obj = dict(get_object(value, path))
    op = obj.pop("op", None)
    for cls in STEPS:
        if cls.op == op:
            step: Step = from_json(cast("Any", cls), obj, path)
            return step
    raise WireError(_join(path, "op"), f"{op!r} is none of {', '.join(cls.op for cls in STEPS)}")


def _convert(hint: Any, value: object, path: str) -> object:
    origin = typing.get_origin(hint)
    if hint == Step:
        return step_from_json(value, path)
    if origin is Union:
        return _convert_union(hint, value, path)
    if origin is tuple:
        return _convert_tuple(typing.get_args(hint), value, path)
    if is_dataclass(hint):
        return from_json(cast("Type[Any]", hint), value, path)
    if isinstance(hint, type) and issubclass(hint, Enum):
        try:
            return hint(value)
        except ValueError:
            raise WireError(path, f"{str(value)[:40]!r} is no {hint.__name__}") from None
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise WireError(path, f"must be {_NAMES.get(hint, str(hint))}, not {_kind(value)}")
    # Counts, sizes, numbers and times: nothing that travels is below zero, and a database holds 63 bits.
    if isinstance(value, (int, float)) and not 0 <= value < LARGEST:
        raise WireError(path, f"must be from 0 to 2^63 - 1, not {str(value)[:20]}")
    return value


def _convert_union(hint: Any, value: object, path: str) -> object:
    choices = typing.get_args(hint)
    if value is None and type(None) in choices:
        return None
    others = [choice for choice in choices if choice is not type(None)]
    if len(others) != 1:
        raise TypeError(f"{path}: only Optional is understood, not {hint}")
    return _convert(others[0], value, path)


def _convert_tuple(items: Tuple[Any, ...], value: object, path: str) -> Tuple[object, ...]:
    if not isinstance(value, (list, tuple)):
        raise WireError(path, f"must be a list, not {_kind(value)}")
    if len(items) == 2 and items[1] is Ellipsis:
        return tuple(_convert(items[0], item, f"{path}[{number}]") for number, item in enumerate(value))
    if len(items) != len(value):
        raise WireError(path, f"must have {len(items)} items, not {len(value)}")
    return tuple(_convert(hint, item, f"{path}[{number}]") for number, (hint, item) in enumerate(zip(items, value)))


def _get(obj: JsonObject, key: str) -> object:
    if key not in obj:
        raise WireError(key, "is missing")
    return obj[key]


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


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
