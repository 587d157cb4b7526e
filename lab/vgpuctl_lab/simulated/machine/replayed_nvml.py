# SPDX-License-Identifier: Apache-2.0
"""The NVML of a capture: pynvml's functions by their names, with the answers that were recorded."""

import ctypes
import importlib
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

from vgpuctl.agent.wire.recorded import (
    BYTES,
    CODE,
    HANDLE,
    NUMBER,
    OUT,
    OUTPUT,
    RAISED,
    RESULT,
    STRUCT,
    TEXT,
    TUPLE,
    AnswerPlayer,
)
from vgpuctl_lab.simulated.machine.nvml_values import CONSTANTS, STRUCTS, InstanceHandle

_UNKNOWN = 999
_EXCEPTIONS = {"AttributeError": AttributeError, "TypeError": TypeError, "ValueError": ValueError}


class ReplayedNvmlError(Exception):
    """pynvml's NVMLError: `value` is the return code, its text is that of the captured library."""

    texts: dict[int, str] = {}

    def __init__(self, value: int, text: str | None = None) -> None:
        super().__init__(value)
        self.value = value
        self._text = text

    def __str__(self) -> str:
        return self._text or self.texts.get(self.value) or f"NVML error {self.value}"


@dataclass(frozen=True)
class ReplayedHandle:
    """A handle, by what it stands for."""

    name: str


class ReplayedNvml:
    """One process's NVML of a capture."""

    def __init__(self, recorded: dict[str, Any]) -> None:
        self._constants: dict[str, Any] = recorded["constants"]
        self._player = AnswerPlayer(recorded["answers"])
        self._instances: list[str] = []
        ReplayedNvmlError.texts = {int(code): str(text) for code, text in recorded["errors"].items()}

    def __getattr__(self, name: str) -> Any:
        if name == "NVMLError":
            return ReplayedNvmlError
        if name in self._constants:
            if self._constants[name] is None:
                raise AttributeError(name)
            return self._constants[name]
        if name == "_nvmlGetFunctionPointer":
            return lambda function: partial(self._call, function)
        if name in STRUCTS:
            return STRUCTS[name]
        if name.startswith("nvml"):
            return partial(self._call, name)
        if name in CONSTANTS:
            return CONSTANTS[name]
        # The library's own numbers and structs, which a newer agent may use.
        return getattr(importlib.import_module("pynvml"), name)

    def _call(self, function: str, *arguments: Any) -> Any:
        key = f"{function}({', '.join(self._described(one) for one in arguments)})"
        if not self._player.has(key):
            raise ReplayedNvmlError(_UNKNOWN, f"not in this capture: {key}")
        answer = self._player.next(key)
        if CODE in answer:
            raise ReplayedNvmlError(int(answer[CODE]), str(answer.get(TEXT, "")))
        if RAISED in answer:
            raise _EXCEPTIONS.get(answer[RAISED], ValueError)(answer.get(TEXT, ""))
        for place, content in answer.get(OUT, {}).items():
            self._fill(arguments[int(place)], content)
        return self._value(answer[RESULT])

    def _described(self, value: Any) -> str:
        if isinstance(value, ReplayedHandle):
            return value.name
        if isinstance(value, InstanceHandle):
            return self._instances[value.card - 1] if 0 < value.card <= len(self._instances) else OUTPUT
        if value is None or isinstance(value, (bool, int, float, str)):
            return str(value)
        if isinstance(value, bytes):
            return value.decode(errors="replace")
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(self._described(one) for one in value)}]"
        return str(value.value) if isinstance(value, ctypes._SimpleCData) else OUTPUT

    def _value(self, value: Any) -> Any:
        """Return a recorded value as pynvml gives it; structs are objects with their fields."""
        if isinstance(value, list):
            return [self._value(one) for one in value]
        if not isinstance(value, dict):
            return value
        if TUPLE in value:
            return tuple(self._value(one) for one in value[TUPLE])
        if BYTES in value:
            return str(value[BYTES]).encode()
        if NUMBER in value:
            return float(value[NUMBER])
        if HANDLE in value:
            return ReplayedHandle(str(value[HANDLE]))
        return SimpleNamespace(**{name: self._value(one) for name, one in value.get(STRUCT, {}).items()})

    def _fill(self, target: Any, content: Any) -> None:
        """Write a recorded content into an argument, as the C function does."""
        target = getattr(target, "_obj", target)
        if isinstance(target, ctypes._SimpleCData):
            target.value = self._value(content)
        elif isinstance(content, list):
            for place, one in enumerate(content[: len(target)]):
                self._fill_place(target, place, one)
        elif isinstance(content, dict) and STRUCT in content:
            for name, one in content[STRUCT].items():
                self._fill_field(target, name, one)

    def _fill_place(self, array: Any, place: int, content: Any) -> None:
        if isinstance(content, dict) and HANDLE in content:
            self._instances.append(str(content[HANDLE]))
            array[place].card = len(self._instances)
        elif isinstance(content, (dict, list)):
            self._fill(array[place], content)
        else:
            array[place] = content

    def _fill_field(self, target: Any, name: str, content: Any) -> None:
        # The captured library may have had fields that are not known here.
        if not hasattr(target, name):
            return
        if isinstance(content, dict) and HANDLE in content:
            return
        if isinstance(content, list) or (isinstance(content, dict) and STRUCT in content):
            self._fill(getattr(target, name), content)
        else:
            setattr(target, name, self._value(content))
