# SPDX-License-Identifier: Apache-2.0
"""The part of `dataclasses` that the agent uses, without code generation: the agent's file has it as `values.py`.

The standard module writes, compiles and runs source text for every class, and imports `inspect` for it: a third of the
CPU of one reading on a host. Here all classes share the same few functions. Python 3.9, standard library only.
"""

from typing import Any, Callable, ClassVar, Dict, Tuple

MISSING = object()
_FIELDS = "__agent_fields__"


class ValueField:
    """One field of a class. default, default_factory: MISSING for none; shown: in repr()."""

    def __init__(self, default: Any, default_factory: Any, *, shown: bool) -> None:
        self.name = ""
        self.default = default
        self.default_factory = default_factory
        self.shown = shown


def field(*, default: Any = MISSING, default_factory: Any = MISSING, repr: bool = True) -> Any:  # noqa: A002 - as in dataclasses
    """Describe a field beyond its type."""
    return ValueField(default, default_factory, shown=repr)


def dataclass(*, frozen: bool = False, eq: bool = True) -> Callable[[type], type]:
    """Give a class the methods of a dataclass, where it has not its own. A class inherits no fields."""

    def decorate(cls: type) -> type:
        """Turn the class's annotations into fields, and give it the methods."""
        own = dict(vars(cls))
        found: Dict[str, ValueField] = {}
        for name, hint in cls.__annotations__.items():
            if isinstance(hint, str) and hint.startswith("ClassVar"):
                continue  # as text in the agent's file (agent_bootstrap.py)
            if getattr(hint, "__origin__", hint) is ClassVar:
                continue
            one = own.get(name, MISSING)
            if not isinstance(one, ValueField):
                one = ValueField(one, MISSING, shown=True)
            elif name in own:
                delattr(cls, name)
            one.name = name
            found[name] = one
        setattr(cls, _FIELDS, found)
        methods: Dict[str, Any] = {"__init__": _init(found), "__repr__": _repr}
        if eq:
            methods["__eq__"] = _eq
        if frozen:
            methods.update(__setattr__=_refuse, __delattr__=_refuse)
        if eq and frozen:
            methods["__hash__"] = _hash
        for name, method in methods.items():
            if own.get(name) is None:
                setattr(cls, name, method)
        return cls

    return decorate


def fields(value: Any) -> Tuple[ValueField, ...]:
    """Return the fields of a class or of its value, in order."""
    return tuple(getattr(value, _FIELDS).values())


def is_dataclass(value: object) -> bool:
    """True for a class that `dataclass` made, and for its values."""
    return hasattr(value, _FIELDS)


def replace(value: Any, **changes: Any) -> Any:
    """Return the same value with some fields changed."""
    return type(value)(**{**{one.name: getattr(value, one.name) for one in fields(value)}, **changes})


def _init(found: Dict[str, ValueField]) -> Callable[..., None]:
    names = tuple(found)
    defaults = {name: one.default for name, one in found.items() if one.default is not MISSING}
    factories = {name: one.default_factory for name, one in found.items() if one.default_factory is not MISSING}

    def initialise(self: Any, *given: Any, **named: Any) -> None:
        values = {**defaults, **dict(zip(names, given)), **named}
        for name, make in factories.items():
            if name not in values:
                values[name] = make()
        is_twice = not named.keys().isdisjoint(names[: len(given)])
        if len(given) > len(names) or is_twice or values.keys() != found.keys():
            wrong = sorted(values.keys() ^ found.keys()) or list(names)
            raise TypeError(f"{type(self).__name__} cannot be made: wrong, missing or given twice: {', '.join(wrong)}")
        # Past the refusal of a frozen value.
        self.__dict__.update(values)

    return initialise


def _values(value: Any) -> Tuple[Any, ...]:
    return tuple(getattr(value, name) for name in getattr(value, _FIELDS))


def _repr(self: Any) -> str:
    shown = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.shown)
    return f"{type(self).__qualname__}({shown})"


def _eq(self: Any, other: object) -> Any:
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _refuse(self: Any, name: str, *_: object) -> None:
    raise AttributeError(f"{type(self).__name__} is frozen: {name} cannot be changed")
