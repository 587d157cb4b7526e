# SPDX-License-Identifier: Apache-2.0
"""The Python of a simulated host: it runs the program it is given, and gives an agent a simulated machine.

The program server runs it. The login's environment says which host it is on. The agent's file is the one every host
gets; when it imports `vgpuctl.agent.host`, the class `Host` there is the adapter to the simulated machine.
"""

import os
import pwd
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

HOST_VARIABLE = "VGPUCTL_SIMULATED_HOST"
BOOT_VARIABLE = "VGPUCTL_SIMULATED_BOOT"
"""In the environment of what a host runs while it boots."""
CAPTURE = "capture.json"
"""In the folder of a host that replays a capture."""
_ADAPTERS = {
    "simulated": ("vgpuctl_lab.simulated.machine.host_adapter", "SimulatedHost"),
    "replayed": ("vgpuctl_lab.simulated.machine.replayed_host", "ReplayedHost"),
}
_HOST = "vgpuctl.agent.host"
_LIBRARY = "libvirt.so.0"
_RUN_FILE = "from vgpuctl.agent.__main__ import main; main()"


def kind_of(folder: str) -> str:
    """The kind of a simulated host: `simulated`, or `replayed` from a capture."""
    return "replayed" if Path(folder, CAPTURE).exists() else "simulated"


class AdapterFinder(MetaPathFinder):
    """Finds the agent's own `host` module and puts the host adapter of this kind of host in it."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:
        """Let the agent's module be found where it is, with our loader around its own."""
        if fullname != _HOST:
            return None
        spec = PathFinder.find_spec(fullname, path)  # type: ignore[arg-type]
        if spec is not None and spec.loader is not None:
            spec.loader = AdapterLoader(spec.loader, self._kind)
        return spec


class AdapterLoader(Loader):
    """Runs the agent's module, then replaces its `Host`."""

    def __init__(self, loader: Loader, kind: str) -> None:
        self._loader = loader
        self._kind = kind

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Leave it to the agent's loader."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the agent's code, then put the host adapter in."""
        self._loader.exec_module(module)
        place, name = _ADAPTERS[self._kind]
        adapter = getattr(__import__(place, fromlist=[name]), name)
        opens_here = {"__init__": lambda host, root="/": adapter.__init__(host, os.environ[HOST_VARIABLE])}
        module.Host = type("Host", (adapter,), opens_here)  # type: ignore[attr-defined]


def _give_library(folder: Path) -> None:
    """Let ctypes load the simulated host's libvirt in place of this machine's."""
    import ctypes

    from vgpuctl_lab.simulated import display

    real = ctypes.CDLL
    ctypes.CDLL = lambda name: display.SimulatedLibrary(folder) if name == _LIBRARY else real(name)  # type: ignore[misc, assignment]


def main() -> None:
    """Take python3's own arguments: `[-I] [-S] -c PROGRAM ARGUMENT…`, or the machine's own agent, `FILE.pyz ARGUMENT…`.

    Anything else is the real Python's.
    """
    arguments = sys.argv[1:]
    while arguments and arguments[0] in ("-I", "-S"):
        arguments.pop(0)
    if arguments and arguments[0].endswith(".pyz"):
        path = f"{os.environ[HOST_VARIABLE]}/root{arguments[0]}"
        arguments = ["-c", _RUN_FILE, *arguments[1:]]
        sys.path.insert(0, path)
    if len(arguments) < 2 or arguments[0] != "-c":
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    home = f"{os.environ[HOST_VARIABLE]}/home"
    real = pwd.getpwuid
    # The agent is kept in the host's home, not in that of this machine's user.
    pwd.getpwuid = lambda number: pwd.struct_passwd((*real(number)[:5], home, real(number)[6]))
    sys.meta_path.insert(0, AdapterFinder(kind_of(os.environ[HOST_VARIABLE])))
    if _LIBRARY in arguments[1]:
        _give_library(Path(os.environ[HOST_VARIABLE]))
    sys.argv = ["-c", *arguments[2:]]
    exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
