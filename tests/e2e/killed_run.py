# SPDX-License-Identifier: Apache-2.0
"""Run `vgpuctl` and kill -9 or interrupt it right after a side effect; told by argv: which, then its arguments.

WHICH is a number, the n-th side effect of all, or a name, the first return of that function; `NAME/n` is its n-th
return. `int:WHICH` sends
SIGINT instead, then SIGTERM and SIGINT after every later side effect: an operator who loses patience. `stop:WHICH`
sends SIGSTOP instead: the run stands still there until it gets SIGCONT. `reboot:WHICH` kills nothing: the simulated
hosts of VGPUCTL_TESTS_HOSTS, in the lab folder VGPUCTL_TESTS_LAB, lose their power and boot there. `libvirtd:WHICH`
stops their libvirtd, `libvirtd-restart:WHICH` starts it again at once, `network:WHICH` cuts their network.

Calls to hosts, libvirt, OVN and the store are wrapped while the command runs; the product is not changed for it.
A run that ends says the names of its side effects, in order, on the last line of stderr. With 0 every run ends.
VGPUCTL_TESTS_NOW is its clock, as for `tests.e2e.other_clock`.
"""

import contextlib
import functools
import importlib
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

WRAPPED = {
    ("vgpuctl.hosts.agent_client", "AgentClient"): ("apply", "guest_state"),
    ("vgpuctl.guests.libvirtd.hypervisor", "Hypervisor"): (
        "define",
        "destroy",
        "reset",
        "shutdown",
        "start",
        "take_name",
        "undefine",
    ),
    ("vgpuctl.guests.libvirtd.migration", "Migration"): ("run",),
    ("vgpuctl.guests.libvirtd.saved_state", "SavedState"): ("save", "change", "drop"),
    ("vgpuctl.guests.live.gpus", "LiveGpus"): ("attach", "detach"),
    ("vgpuctl.guests.live.nics", "LiveNics"): ("attach", "detach"),
    ("vgpuctl.guests.live.limits", "LiveLimits"): ("set",),
    ("vgpuctl.guests.live.disks", "LiveDisks"): ("attach", "detach", "eject", "merge", "resize", "snapshot"),
    ("vgpuctl.guests.libvirtd.networks", "LibvirtNetworks"): ("ensure", "remove"),
    ("vgpuctl.guests.libvirtd.storage", "Storage"): (
        "copy_volume",
        "create_disk",
        "create_image",
        "create_overlay",
        "delete_volume",
    ),
    ("vgpuctl.ovn.northbound", "Northbound"): ("apply",),
}


_OF_HOSTS = ("reboot", "libvirtd", "libvirtd-restart", "network")


class Watch:
    """Notes side effects and kills the process, or lets hosts fail, after the wanted one.

    A process is killed after those of its main thread; hosts fail after those of any.
    """

    def __init__(self, wanted: str) -> None:
        how, _, which = wanted.rpartition(":")
        self._wanted = which
        self._of_hosts = how if how in _OF_HOSTS else None
        self._signal = {"": signal.SIGKILL, "stop": signal.SIGSTOP}.get(how)
        self._is_over = False
        self._lock = threading.Lock()
        self.seen: list[str] = []
        self._returns: Counter[str] = Counter()

    def _done(self, name: str) -> None:
        self._returns[name] += 1
        if self._wanted == f"{name}/{self._returns[name]}":
            name = self._wanted
        if self._of_hosts is not None:
            with self._lock:
                self.seen.append(name)
                if self._wanted in (str(len(self.seen)), name) and not self._is_over:
                    self._is_over = True
                    _to_hosts(self._of_hosts)
            return
        if threading.current_thread() is not threading.main_thread():
            return
        self.seen.append(name)
        if self._signal is not None:
            if self._wanted in (str(len(self.seen)), name) and not self._is_over:
                self._is_over = True
                os.kill(os.getpid(), self._signal)
            return
        if self._is_over:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
        elif self._wanted in (str(len(self.seen)), name):
            self._is_over = True
            os.kill(os.getpid(), signal.SIGINT)

    def method(self, owner: type, name: str) -> None:
        """Watch a method that has done its work when it returns or raises."""
        original: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(original)
        def watched(*arguments: Any, **options: Any) -> Any:
            try:
                return original(*arguments, **options)
            finally:
                self._done(name)

        setattr(owner, name, watched)

    def transaction(self, owner: type) -> None:
        """Watch a block that has done its work when it is left."""
        original: Callable[..., contextlib.AbstractContextManager[Any]] = owner.transaction  # type: ignore[attr-defined]

        @contextlib.contextmanager
        def watched(*arguments: Any) -> Iterator[Any]:
            try:
                with original(*arguments) as session:
                    yield session
            finally:
                self._done("transaction")

        owner.transaction = watched  # type: ignore[attr-defined]


def _to_hosts(what: str) -> None:
    import vgpuctl_lab as lab

    folder = lab.LabFolder(Path(os.environ["VGPUCTL_TESTS_LAB"]))
    for host in os.environ["VGPUCTL_TESTS_HOSTS"].split(","):
        if what == "reboot":
            lab.simulated.reboot(host, folder=folder)
            continue
        kind, _, restart = what.partition("-")
        lab.faults.begin(host, kind, folder=folder)
        if restart:
            lab.faults.clear(host, [kind], folder=folder)


def main() -> NoReturn:
    """Run one command line, killed where argv says."""
    wanted, arguments = sys.argv[1], sys.argv[2:]
    from tests.e2e.other_clock import set_clock
    from vgpuctl.cli.main import leave, run
    from vgpuctl.store.store import Store

    set_clock()
    watch = Watch(wanted)
    watch.transaction(Store)
    for (module, owner), names in WRAPPED.items():
        for name in names:
            watch.method(getattr(importlib.import_module(module), owner), name)
    code = run(arguments)
    sys.stderr.write(f"{' '.join(watch.seen)}\n")
    leave(code)


if __name__ == "__main__":
    main()
