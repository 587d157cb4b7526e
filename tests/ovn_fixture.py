# SPDX-License-Identifier: Apache-2.0
"""A real OVN central of a test's own: both databases and northd on unix sockets, without root and kernel modules."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

import vgpuctl_lab as lab
from tests.lab.simulated_fixtures import make_chassis
from vgpuctl.ovn.authority import Authority

_SCHEMAS = Path("/usr/share/ovn")
_LIMIT_S = 20.0
_CHASSIS = "of-the-tests"
_PROGRAMS = ("ovsdb-server", "ovsdb-tool", "ovn-northd", "ovn-nbctl", "ovn-sbctl", "ovn-trace")


def missing_for_ovn() -> str | None:
    """Say what this machine lacks to run OVN's databases; None when it has all."""
    for program in _PROGRAMS:
        if shutil.which(program, path=_path()) is None:
            return f"{program} is not installed: apt-get install ovn-central"
    return None


class LocalOvn:
    """OVN's central as a context manager. folder: a new folder with a short path; everything lies in it.

    authority: with it both databases also listen on loopback, each at a port of its own, as docs/networks.md says:
    the northbound one for operators alone, the southbound one with OVN's role for hosts.
    """

    def __init__(self, folder: Path, authority: Authority | None = None) -> None:
        self.folder = folder
        self._authority = authority
        self.ports = {"nb": 0, "sb": 0}
        self._binds_ports = False
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def northbound(self) -> str:
        """The northbound database's remote."""
        return f"unix:{self.folder}/nb.sock"

    @property
    def southbound(self) -> str:
        """The southbound database's remote."""
        return f"unix:{self.folder}/sb.sock"

    def __enter__(self) -> Self:
        for name in ("nb", "sb"):
            schema = _SCHEMAS / f"ovn-{name}.ovsschema"
            self._run("ovsdb-tool", "create", str(self.folder / f"{name}.db"), str(schema))
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start what does not run."""
        for name in ("nb", "sb"):
            database, socket = self.folder / f"{name}.db", self.folder / f"{name}.sock"
            tls = [] if self._authority is None or name in self._processes else self._listen(name, self._authority)
            self._start(name, "ovsdb-server", str(database), f"--remote=punix:{socket}", *tls)
            deadline = time.monotonic() + _LIMIT_S
            while not socket.exists():
                assert time.monotonic() < deadline, f"ovsdb-server makes no {socket}"
                time.sleep(0.01)
            if self._authority is not None:
                self.ports[name] = self.ports[name] or self._listening_port(name)
        self._start("northd", "ovn-northd", f"--ovnnb-db={self.northbound}", f"--ovnsb-db=unix:{self.folder}/sb.sock")
        if self._binds_ports and "ports" not in self._processes:
            self._start_binding()
        self.sync()

    def bind_ports(self) -> None:
        """Claim every port of a VM from now on, as ovn-controller of its host does when the VM starts.

        The hosts of the tests carry no packets, so one chassis claims the ports of all.
        """
        if not self._binds_ports:
            self._binds_ports = True
            self.sbctl("chassis-add", _CHASSIS, "geneve", "127.0.0.1")
            self.start()

    def _start_binding(self) -> None:
        columns = ("logical_port", "chassis", "type")
        watch = ("monitor", f"unix:{self.folder}/sb.sock", "OVN_Southbound", "Port_Binding", ",".join(columns))
        self._begin("ports", "ovsdb-client", "--format=json", *watch)
        threading.Thread(target=self._bind, args=(self._processes["ports"],), daemon=True).start()

    def _bind(self, watching: "subprocess.Popen[bytes]") -> None:
        """Claim the ports that a monitor of the southbound database tells of, until it ends."""
        line = ""
        with (self.folder / "ports.out").open() as shown:
            while watching.poll() is None:
                line += shown.readline()
                if not line.endswith("\n"):
                    time.sleep(0.02)
                    continue
                for _uuid, action, port, chassis, kind in json.loads(line)["data"] if line.strip() else ():
                    if action in ("initial", "insert") and (chassis, kind) == (["set", []], ""):
                        with contextlib.suppress(AssertionError):  # gone by now, with its VM
                            self.sbctl("lsp-bind", port, _CHASSIS)
                line = ""

    def _listen(self, name: str, authority: Authority) -> list[str]:
        """Options for a database that is not running; the southbound one says itself where and to whom it listens."""
        files = authority.files("central")
        believed = files.authority if name == "sb" else authority.operators
        options = [f"--private-key={files.key}", f"--certificate={files.certificate}", f"--ca-cert={believed}"]
        target = f"pssl:{self.ports[name]}:127.0.0.1"
        if name == "nb":
            return [*options, f"--remote={target}"]
        row = {"target": target, "role": "ovn-controller"}
        changes: list[object] = [{"op": "update", "table": "Connection", "where": [], "row": row}]
        if not self.ports[name]:
            changes = [
                {"op": "insert", "table": "Connection", "row": row, "uuid-name": "listener"},
                {"op": "insert", "table": "SB_Global", "row": {"connections": ["named-uuid", "listener"]}},
            ]
        told = self._run("ovsdb-tool", "transact", f"{self.folder}/sb.db", json.dumps(["OVN_Southbound", *changes]))
        assert "error" not in told, told
        return [*options, "--remote=db:OVN_Southbound,SB_Global,connections"]

    def _listening_port(self, name: str) -> int:
        """The port that the kernel chose at the first start, as the server's log tells."""
        deadline = time.monotonic() + _LIMIT_S
        while not (found := re.findall(r"listening on port (\d+)", (self.folder / f"{name}.log").read_text())):
            assert time.monotonic() < deadline, f"{name} listens on no port"
            time.sleep(0.01)
        return int(found[-1])

    def stop(self) -> None:
        """End everything, as a machine that is switched off does; the databases stay."""
        while self._processes:
            _name, process = self._processes.popitem()
            process.kill()
            process.wait(_LIMIT_S)
        for name in ("nb", "sb"):
            (self.folder / f"{name}.sock").unlink(missing_ok=True)

    def nbctl(self, *arguments: str) -> str:
        """Ask or change the northbound database without our code."""
        return self._run("ovn-nbctl", f"--db={self.northbound}", "--timeout=20", *arguments)

    def sbctl(self, *arguments: str) -> str:
        """Ask or change the southbound database, as an ovn-controller would."""
        return self._run("ovn-sbctl", f"--db=unix:{self.folder}/sb.sock", "--timeout=20", *arguments)

    def sync(self) -> None:
        """Wait until northd has made flows of everything."""
        self.nbctl("--wait=sb", "sync")

    def trace(self, switch: str, flow: str, *options: str) -> str:
        """Where a packet goes, as `ovn-trace --minimal` tells."""
        return self._run(
            "ovn-trace", f"--db=unix:{self.folder}/sb.sock", "--minimal", "--no-friendly-names", *options, switch, flow
        )

    def _start(self, name: str, program: str, *arguments: str) -> None:
        """Start a daemon that does not run."""
        files = (f"--unixctl={self.folder}/{name}.ctl", f"--log-file={self.folder}/{name}.log")
        if name not in self._processes:
            self._begin(name, program, *arguments, *files)

    def _begin(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.out").open("wb") as out:
            self._processes[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={"PATH": _path(), "OVN_RUNDIR": str(self.folder), "OVS_RUNDIR": str(self.folder)},
            )

    def _run(self, *command: str) -> str:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=60, env={"PATH": _path(), "LANG": "C.UTF-8"}
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout


def _path() -> str:
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


@pytest.fixture(scope="module")
def central() -> Iterator[LocalOvn]:
    """One OVN central for one test file. VGPUCTL_TESTS_MUST_RUN=1 (CI) makes its absence a failure."""
    missing = missing_for_ovn()
    if missing is not None:
        if os.environ.get("VGPUCTL_TESTS_MUST_RUN"):
            pytest.fail(missing)
        pytest.skip(missing)
    # A socket's name is limited to 108 characters, pytest's folders are long.
    folder = Path(tempfile.mkdtemp(prefix="vgpuctl-", dir="/tmp"))
    try:
        with LocalOvn(folder) as ovn:
            yield ovn
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def chassis(fleet: lab.LabFolder, central: LocalOvn) -> None:
    """The hosts of the test file's fleet as OVN's chassis, which claim the ports of VMs."""
    make_chassis(fleet)
    central.bind_ports()
