# SPDX-License-Identifier: Apache-2.0
"""A host's real Open vSwitch and ovn-controller without a module of the kernel.

Without root no packet is carried; with it, Open vSwitch carries packets itself, in a network namespace of its own.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
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
    """The daemons as a context manager. folder: a new one with a short path. files: None without TLS.

    namespace: the network namespace in which they carry packets; None to carry none. bridges: of physical networks.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        southbound: str,
        files: IdentityFiles | None = None,
        *,
        namespace: str | None = None,
        bridges: Mapping[str, str] | None = None,
    ) -> None:
        self._namespace = namespace
        self._bridges = dict(bridges or {})
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

    def add_tap(self, name: str, interface_id: str | None = None, *, bridge: str = "br-int") -> None:
        """Make an interface whose packets the bridge carries. interface_id: by which OVN knows it."""
        external_ids = [] if interface_id is None else [f"external_ids:iface-id={interface_id}"]
        words = ["add-port", bridge, name, "--", "set", "Interface", name, "type=internal", *external_ids]
        self._run("ovs-vsctl", f"--db=unix:{self._folder}/db.sock", "--timeout=20", *words)

    def del_tap(self, name: str) -> None:
        """Delete an interface."""
        self._run("ovs-vsctl", f"--db=unix:{self._folder}/db.sock", "--timeout=20", "--if-exists", "del-port", name)

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
        if self._bridges:
            settings["ovn-bridge-mappings"] = ",".join(f"{name}:{bridge}" for name, bridge in self._bridges.items())
        self._vsctl("set", "Open_vSwitch", ".", *(f'external_ids:{key}="{value}"' for key, value in settings.items()))
        datapath = "dummy" if self._namespace is None else "netdev"
        for name in ("br-int", *self._bridges.values()):
            mode = ["fail-mode=secure"] if name == "br-int" else []
            self._vsctl("add-br", name, "--", "set", "Bridge", name, f"datapath_type={datapath}", *mode)
        dummy = ["--enable-dummy=override"] if self._namespace is None else []
        options = (*dummy, "--disable-system", f"--unixctl={self._folder}/switch.ctl")
        self._daemon("ovs-vswitchd", f"unix:{socket}", *options)
        files = self._files
        identity = (
            []
            if files is None
            else [f"--private-key={files.key}", f"--certificate={files.certificate}", f"--ca-cert={files.authority}"]
        )
        self._daemon("ovn-controller", f"unix:{socket}", *identity)

    def _stop(self) -> None:
        while self._processes:
            process = self._processes.pop()
            process.kill()
            process.wait(_LIMIT_S)

    def _vsctl(self, *words: str, must: bool = True) -> bool:
        return self._run("ovs-vsctl", f"--db=unix:{self._folder}/db.sock", "--no-wait", *words, must=must)

    def _daemon(self, program: str, *arguments: str) -> None:
        inside = [] if self._namespace is None else ["ip", "netns", "exec", self._namespace]
        options = [*arguments, f"--log-file={self._folder}/{program}.log"]
        command = ["setpriv", "--pdeathsig", "KILL", *inside, program, *options]
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
