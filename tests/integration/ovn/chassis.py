# SPDX-License-Identifier: Apache-2.0
"""A host's real Open vSwitch and ovn-controller without a module of the kernel.

Without root, packets are those that a test puts in; with it, Open vSwitch carries packets itself, in a network
namespace of its own.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from vgpuctl.ovn.authority import IdentityFiles

if TYPE_CHECKING:
    from tests.integration.ovn.wire import Wire

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


class Switch:
    """Open vSwitch as a context manager. folder: a new one with a short path. namespace: where it carries packets."""

    def __init__(self, folder: Path, namespace: str | None = None) -> None:
        self.folder = folder
        self._namespace = namespace
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self.folder.mkdir()
        try:
            self._start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """It loses its power: all at once, and nobody is told."""
        while self._processes:
            process = self._processes.pop()
            process.kill()
            process.wait(_LIMIT_S)

    def vsctl(self, *words: str, must: bool = True, waits: bool = False) -> bool:
        """Ask or change its database. waits: until the switch is so."""
        options = ["--timeout=30"] if waits else ["--no-wait"]
        return self._run("ovs-vsctl", f"--db=unix:{self.folder}/db.sock", *options, *words, must=must)

    def appctl(self, *words: str) -> bool:
        """Tell the switch something."""
        return self._run("ovs-appctl", "-t", f"{self.folder}/switch.ctl", *words)

    def add_interface(self, bridge: str, name: str, *settings: str) -> Path:
        """Add an interface to a bridge. Returns the file of the packets that come out of it."""
        told = self.folder / f"{name}.pcap"
        port = ["add-port", bridge, name, "--", "set", "Interface", name, "type=dummy", f"options:tx_pcap={told}"]
        self.vsctl(*port, *settings, waits=True)
        return told

    def send(self, frame: bytes, name: str = "tap0") -> None:
        """Let a packet come in by an interface, as a VM sends it."""
        self.appctl("netdev-dummy/receive", name, frame.hex())

    def _start(self) -> None:
        database, socket = self.folder / "conf.db", self.folder / "db.sock"
        self._run("ovsdb-tool", "create", str(database), str(_SCHEMA))
        self._daemon("ovsdb-server", str(database), f"--remote=punix:{socket}", f"--unixctl={self.folder}/db.ctl")
        wait_for(lambda: self.vsctl("init", must=False), "Open vSwitch's database answers")
        dummy = ["--enable-dummy=system"] if self._namespace is None else []
        options = (*dummy, "--disable-system", f"--unixctl={self.folder}/switch.ctl")
        self._daemon("ovs-vswitchd", f"unix:{socket}", *options)

    def _daemon(self, program: str, *arguments: str) -> None:
        inside = [] if self._namespace is None else ["ip", "netns", "exec", self._namespace]
        options = [*arguments, f"--log-file={self.folder}/{program}.log"]
        command = ["setpriv", "--pdeathsig", "KILL", *inside, program, *options]
        with (self.folder / f"{program}.out").open("wb") as out:
            self._processes.append(
                subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self._environment())
            )

    def _run(self, *command: str, must: bool = True) -> bool:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=self._environment())
        assert done.returncode == 0 or not must, f"{' '.join(command)}: {done.stdout}{done.stderr}"
        return done.returncode == 0

    def _environment(self) -> dict[str, str]:
        return {"PATH": _path(), "OVN_RUNDIR": str(self.folder), "OVS_RUNDIR": str(self.folder)}


class Chassis(Switch):
    """A host: its switch and ovn-controller. files: its certificate, for a southbound database by `ssl:`.

    namespace: the network namespace in which it carries packets; None to carry none. bridges: of physical networks.
    wire: the network that joins it to other hosts; without one its tunnels lead nowhere. address: its own in there.
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
        wire: "Wire | None" = None,
        address: str = "127.0.0.1",
    ) -> None:
        super().__init__(folder, namespace)
        self._bridges = dict(bridges or {})
        self._name = name
        self._southbound = southbound
        self._files = files
        self._wire = wire
        self._address = address

    def plug(self, interface_id: str, name: str = "tap0") -> Path:
        """Have a VM's interface in the integration bridge. Returns the file of the packets that the VM gets."""
        return self.add_interface("br-int", name, f"external_ids:iface-id={interface_id}")

    def add_tap(self, name: str, interface_id: str | None = None, *, bridge: str = "br-int") -> None:
        """Make an interface whose packets the bridge carries. interface_id: by which OVN knows it."""
        external_ids = [] if interface_id is None else [f"external_ids:iface-id={interface_id}"]
        words = ["add-port", bridge, name, "--", "set", "Interface", name, "type=internal", *external_ids]
        self.vsctl(*words, waits=True)

    def del_tap(self, name: str) -> None:
        """Delete an interface."""
        self.vsctl("--if-exists", "del-port", name, waits=True)

    def _start(self) -> None:
        super()._start()
        settings = {
            "system-id": self._name,
            "ovn-remote": self._southbound,
            "ovn-encap-type": "geneve",
            "ovn-encap-ip": self._address,
        }
        if self._bridges:
            settings["ovn-bridge-mappings"] = ",".join(f"{name}:{bridge}" for name, bridge in self._bridges.items())
        self.vsctl("set", "Open_vSwitch", ".", *(f'external_ids:{key}="{value}"' for key, value in settings.items()))
        datapath = "dummy" if self._namespace is None else "netdev"
        for name in ("br-int", *self._bridges.values()):
            mode = ["fail-mode=secure"] if name == "br-int" else []
            self.vsctl("add-br", name, "--", "set", "Bridge", name, f"datapath_type={datapath}", *mode)
        if self._wire is not None:
            self._wire.join(self.vsctl, self.appctl, self._address)
        identity: tuple[str, ...] = ()
        if self._files is not None:
            files = self._files
            identity = (
                *(f"--private-key={files.key}", f"--certificate={files.certificate}", f"--ca-cert={files.authority}"),
            )
        self._daemon("ovn-controller", f"unix:{self.folder}/db.sock", *identity)


def _path() -> str:
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
