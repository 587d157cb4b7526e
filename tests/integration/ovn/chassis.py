# SPDX-License-Identifier: Apache-2.0
"""A host's real Open vSwitch and ovn-controller without kernel and root: no packet is carried."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from vgpuctl.ovn.authority import IdentityFiles

_SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
_PROGRAMS = ("ovs-vswitchd", "ovs-vsctl", "ovn-controller")
_LIMIT_S = 60.0


def missing_for_controller() -> str | None:
    """The first program of a host that this machine lacks, None when it has all."""
    return next((one for one in _PROGRAMS if shutil.which(one, path=_path()) is None), None)


def wait_for(is_so: Callable[[], bool], what: str) -> None:
    """Ask until it is so."""
    deadline = time.monotonic() + _LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline, f"it did not come to be: {what}"
        time.sleep(0.05)


class Chassis:
    """The daemons as a context manager. folder: a new one with a short path."""

    def __init__(self, folder: Path, name: str, southbound: str, files: IdentityFiles) -> None:
        self._folder = folder
        self._name = name
        self._southbound = southbound
        self._files = files
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self._folder.mkdir()
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def plug(self, interface_id: str) -> None:
        """Have a VM's interface in the integration bridge."""
        port = ["add-port", "br-int", "tap0", "--", "set", "Interface", "tap0", "type=dummy"]
        self._vsctl(*port, f"external_ids:iface-id={interface_id}")

    def _start(self) -> None:
        database, socket = self._folder / "conf.db", self._folder / "db.sock"
        self._run("ovsdb-tool", "create", str(database), str(_SCHEMA))
        self._daemon("ovsdb-server", str(database), f"--remote=punix:{socket}", f"--unixctl={self._folder}/db.ctl")
        wait_for(lambda: self._vsctl("init", must=False), "Open vSwitch's database answers")
        settings = {
            "system-id": self._name,
            "ovn-remote": self._southbound,
            "ovn-encap-type": "geneve",
            "ovn-encap-ip": "127.0.0.1",
        }
        self._vsctl("set", "Open_vSwitch", ".", *(f'external_ids:{key}="{value}"' for key, value in settings.items()))
        bridge = ["add-br", "br-int", "--", "set", "Bridge", "br-int", "datapath_type=dummy", "fail-mode=secure"]
        self._vsctl(*bridge)
        dummy = ("--enable-dummy=override", "--disable-system", f"--unixctl={self._folder}/switch.ctl")
        self._daemon("ovs-vswitchd", f"unix:{socket}", *dummy)
        files = self._files
        identity = (f"--private-key={files.key}", f"--certificate={files.certificate}", f"--ca-cert={files.authority}")
        self._daemon("ovn-controller", f"unix:{socket}", *identity)

    def _stop(self) -> None:
        while self._processes:
            process = self._processes.pop()
            process.kill()
            process.wait(_LIMIT_S)

    def _vsctl(self, *words: str, must: bool = True) -> bool:
        return self._run("ovs-vsctl", f"--db=unix:{self._folder}/db.sock", "--no-wait", *words, must=must)

    def _daemon(self, program: str, *arguments: str) -> None:
        command = ["setpriv", "--pdeathsig", "KILL", program, *arguments, f"--log-file={self._folder}/{program}.log"]
        with (self._folder / f"{program}.out").open("wb") as out:
            self._processes.append(
                subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self._environment())
            )

    def _run(self, *command: str, must: bool = True) -> bool:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=self._environment())
        assert done.returncode == 0 or not must, f"{' '.join(command)}: {done.stdout}{done.stderr}"
        return done.returncode == 0

    def _environment(self) -> dict[str, str]:
        return {"PATH": _path(), "OVN_RUNDIR": str(self._folder), "OVS_RUNDIR": str(self._folder)}


def _path() -> str:
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
