# SPDX-License-Identifier: Apache-2.0
"""The Python of a simulated host: it runs the program it is given, and gives an agent a simulated machine.

`lab up` copies it to `bin/python3`. The login's environment says which host it is on. The agent's file is the one
every host gets; when it imports `vgpuctl.agent.host`, the class `Host` there is the adapter to the simulated machine.
"""

import os
import pwd
import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    # It loads all that reads packages' files: a twelfth of the CPU of an agent's run.
    from importlib.abc import Loader, MetaPathFinder
else:
    Loader = MetaPathFinder = object

HOST_VARIABLE = "VGPUCTL_SIMULATED_HOST"
PACKAGE_VARIABLE = "VGPUCTL_SIMULATED_PACKAGE"
MODEL_VARIABLE = "VGPUCTL_SIMULATED_MODEL"
CAPTURE = "capture.json"
"""In the folder of a host that replays a capture."""
_ADAPTER = "vgpuctl_lab.simulated.machine.host_adapter", "SimulatedHost"
_REPLAY = "vgpuctl_lab.simulated.machine.replayed_host", "ReplayedHost"
_HOST = "vgpuctl.agent.host"
_LIBRARY = "libvirt.so.0"
_RUN_FILE = "from vgpuctl.agent.__main__ import main; main()"


class AdapterFinder(MetaPathFinder):
    """Finds the agent's own `host` module and puts the host adapter of the simulated machine in it."""

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:
        """Let the agent's module be found where it is, with our loader around its own."""
        if fullname != _HOST:
            return None
        spec = PathFinder.find_spec(fullname, path)  # type: ignore[arg-type]
        if spec is not None and spec.loader is not None:
            spec.loader = AdapterLoader(spec.loader)
        return spec


class AdapterLoader(Loader):
    """Runs the agent's module, then replaces its `Host`."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Leave it to the agent's loader."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the agent's code, then put the host adapter in."""
        self._loader.exec_module(module)
        folder = os.environ[HOST_VARIABLE]
        # The packages above the machine stay empty here; the agent's file has no vgpuctl.model.
        lab = os.environ[PACKAGE_VARIABLE]
        for name, place in (
            ("vgpuctl_lab", lab),
            ("vgpuctl_lab.simulated", f"{lab}/simulated"),
            ("vgpuctl.model", os.environ[MODEL_VARIABLE]),
        ):
            package = ModuleType(name)
            package.__path__ = [place]
            sys.modules.setdefault(name, package)
        kind = _REPLAY if os.path.exists(f"{folder}/{CAPTURE}") else _ADAPTER  # noqa: PTH110 - pathlib is slow to load
        adapter = getattr(__import__(kind[0], fromlist=[kind[1]]), kind[1])
        opens_here = {"__init__": lambda host, root="/": adapter.__init__(host, folder)}
        module.Host = type("Host", (adapter,), opens_here)  # type: ignore[attr-defined]


def _give_library(folder: Path) -> None:
    """Let ctypes load the simulated host's libvirt in place of this machine's."""
    import ctypes

    source = f"{os.environ[PACKAGE_VARIABLE]}/simulated/display.py"
    spec = spec_from_file_location("simulated_display", source)
    assert spec is not None and spec.loader is not None
    display = module_from_spec(spec)
    spec.loader.exec_module(display)
    real = ctypes.CDLL
    ctypes.CDLL = lambda name: display.SimulatedLibrary(folder) if name == _LIBRARY else real(name)  # type: ignore[misc, assignment]


def main() -> None:
    """Take python3's own arguments: `[-I] [-S] -c PROGRAM ARGUMENT…`, or the machine's own agent, `FILE.pyz ARGUMENT…`.

    Anything else is the real Python's.
    """
    arguments = sys.argv[1:]
    while arguments and arguments[0] in ("-I", "-S"):
        arguments.pop(0)
    if arguments and arguments[0].endswith(".pyz") and HOST_VARIABLE in os.environ:
        path = f"{os.environ[HOST_VARIABLE]}/root{arguments[0]}"
        arguments = ["-c", _RUN_FILE, *arguments[1:]]
        sys.path.insert(0, path)
    if len(arguments) < 2 or arguments[0] != "-c" or HOST_VARIABLE not in os.environ:
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    home = f"{os.environ[HOST_VARIABLE]}/home"
    real = pwd.getpwuid
    # The agent is kept in the host's home, not in that of this machine's user.
    pwd.getpwuid = lambda number: pwd.struct_passwd((*real(number)[:5], home, real(number)[6]))
    sys.meta_path.insert(0, AdapterFinder())
    if _LIBRARY in arguments[1]:
        _give_library(Path(os.environ[HOST_VARIABLE]))
    sys.argv = ["-c", *arguments[2:]]
    exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    main()
