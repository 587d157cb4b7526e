# SPDX-License-Identifier: Apache-2.0
"""Agents that the program server has loaded: a login whose host keeps the same file starts with their modules.

To run the modules of an agent takes 30 ms of processor time, and a test makes many logins. The host's own file decides
as before: modules are kept by the digest of their file, which the bootstrap compares before it uses them.
"""

import gc
import hashlib
import importlib
import marshal
import sys
from collections.abc import Mapping
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType

from vgpuctl_lab.simulated import interpreter

_DIGITS = 64
_OURS = ("vgpuctl", "vgpuctl_lab", "pynvml")


class _Compiled(InspectLoader):
    """Finds and runs the modules of a compiled agent, as the agent's bootstrap does. codes: marshalled, by module."""

    def __init__(self, path: str, codes: Mapping[str, bytes]) -> None:
        self._path = path
        self._codes = codes

    def find_spec(self, name: str, target: ModuleType | None = None) -> ModuleSpec | None:
        """The module of this name, or the package."""
        for each in (name, f"{name}.__init__"):
            if each in self._codes:
                spec = ModuleSpec(name, self, origin=each, is_package=each != name)
                if spec.submodule_search_locations is not None:
                    spec.submodule_search_locations.append(self._path)
                return spec
        return None

    def get_code(self, fullname: str) -> CodeType:
        """Unmarshal it."""
        code: CodeType = marshal.loads(self._codes.get(fullname) or self._codes[f"{fullname}.__init__"])
        return code

    def get_source(self, fullname: str) -> None:
        """Only the code is kept."""


class LoadedAgents:
    """The modules of each agent by the digest of its file and the kind of host that it is on."""

    def __init__(self) -> None:
        self._modules: dict[tuple[str, str], dict[str, ModuleType]] = {}

    def load(self, arguments: list[str], environment: Mapping[str, str]) -> None:
        """Load the agent of a login, if its host keeps it and it is not loaded yet."""
        key = _key(arguments, environment)
        if key is None or key in self._modules:
            return
        path = Path(environment[interpreter.HOST_VARIABLE], "home/.cache/vgpuctl", f"agent-{key[0]}.pyz")
        codes = _codes(path, key[0])
        if codes is None:
            return
        try:
            self._modules[key] = _run(str(path), codes, key[1])
        except Exception:  # noqa: BLE001 - whatever a module raises; the login runs it too, and says so
            self._modules[key] = {}
        gc.freeze()

    def give(self, arguments: list[str], environment: Mapping[str, str]) -> None:
        """Let this process have the modules of its agent, if they are loaded."""
        sys.modules.update(self._modules.get(_key(arguments, environment) or ("", ""), {}))


def _key(arguments: list[str], environment: Mapping[str, str]) -> tuple[str, str] | None:
    """The digest of the agent's file and the kind of host, of a program that is an agent's bootstrap."""
    folder = environment.get(interpreter.HOST_VARIABLE)
    *_, digest, size = ["", "", *arguments]
    if folder is None or len(digest) != _DIGITS or not size.isdigit():
        return None
    return digest, interpreter.kind_of(folder)


def _codes(path: Path, digest: str) -> dict[str, bytes] | None:
    """The agent that a host keeps, compiled by its Python; None if it keeps no such one."""
    try:
        data = path.read_bytes()
        ours = path.with_name(f"{path.stem}.{sys.implementation.cache_tag}-{sys.hexversion:x}").read_bytes()
    except OSError:
        return None
    told, compiled = ours[:_DIGITS], ours[_DIGITS:]
    if hashlib.sha256(data).hexdigest() != digest or hashlib.sha256(compiled).hexdigest().encode() != told:
        return None
    codes: dict[str, bytes] = marshal.loads(compiled)
    return codes


def _run(path: str, codes: Mapping[str, bytes], kind: str) -> dict[str, ModuleType]:
    """Run the modules of an agent. Returns them by name; this process has none of them afterwards."""
    before = set(sys.modules)
    finder = interpreter.AdapterFinder(kind)
    sys.meta_path.insert(0, finder)
    sys.path.insert(0, path)
    sys.path_importer_cache[path] = _Compiled(path, codes)
    try:
        for name in sorted(codes):
            if name != "__main__":
                importlib.import_module(name.removesuffix(".__init__"))
    finally:
        sys.meta_path.remove(finder)
        sys.path.remove(path)
        del sys.path_importer_cache[path]
        new = set(sys.modules) - before
        loaded = {name: sys.modules.pop(name) for name in new if name.partition(".")[0] in _OURS}
    return loaded
