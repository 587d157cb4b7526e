# SPDX-License-Identifier: Apache-2.0
"""A simulated machine in this process: the product's own client and agent with a pipe in place of SSH.

libvirt is its own test driver; the machine sees the QEMUs that it would have started.
"""

import contextlib
import functools
import json
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self, cast

from tests.agent.simulated import Machine, PatientHost
from vgpuctl.agent.dispatch import answer
from vgpuctl.agent.wire.envelope import Problem, Reply, Request, reply_to_json, request_from_json
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.errors import DomainRejected
from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
from vgpuctl.hosts.agent_bootstrap import ANSWER
from vgpuctl.hosts.agent_client import AgentClient
from vgpuctl.inventory.load import load_inventory
from vgpuctl.model.host_target import HostTarget
from vgpuctl.ovn.authority import Authority
from vgpuctl.store.restore import StorePlace
from vgpuctl.store.store import open_store
from vgpuctl.usecases.running.services import HostSession, Openers, Services
from vgpuctl_lab.simulated.libvirt_xml import as_test_domain, devices_of, nodes_kib_of, pages_of
from vgpuctl_lab.simulated.machine import domains

HOST = "gpu1"
_NODE = """<node><cpu><mhz>2000</mhz><model>x86</model><active>64</active><nodes>1</nodes><sockets>1</sockets>
<cores>64</cores><threads>1</threads></cpu><memory>268435456</memory></node>"""


class _Process:
    """The agent behind the pipe. fails: called before and after each step; raises Problem for one that is to fail."""

    def __init__(self, machine: "MachineInProcess") -> None:
        self._machine = machine
        self._lines = deque([f"{ANSWER} have\n".encode()])
        self.stderr = b""

    def write(self, data: bytes) -> None:
        request = request_from_json(json.loads(data))
        self._lines.append(json.dumps(reply_to_json(self._machine.answer(request))).encode() + b"\n")

    def take(self) -> bytes | None:
        return b""

    def read_line(self, timeout_s: float) -> bytes:
        return self._lines.popleft()

    def close(self) -> None:
        self._lines.clear()


class _Connection:
    def __init__(self, machine: "MachineInProcess") -> None:
        self.target = HostTarget(HOST, "192.0.2.1")
        self.is_open = True
        self.way = None
        self._machine = machine

    def open_process(self, argv: Sequence[str], *, timeout_s: float) -> _Process:
        return _Process(self._machine)

    @contextlib.contextmanager
    def libvirt_uri(self) -> Iterator[str]:
        yield ""

    def close(self) -> None:
        self.is_open = False


class _Libvirt(Hypervisor):
    """libvirt's test driver, whose domains take the machine's devices."""

    def __init__(self, machine: Machine) -> None:
        node = machine.files.folder / "node.xml"
        node.write_text(_NODE)
        super().__init__(f"test://{node}", host=HOST)
        self._machine = machine.files

    def __enter__(self) -> Self:
        """The test driver forgets its domains with its connection, so there is one."""
        return self if self._connection is not None else super().__enter__()

    def __exit__(self, *_: object) -> None:
        """It lasts as long as the machine, over all sessions."""

    def define(self, xml: str) -> None:
        super().define(as_test_domain(xml))

    def start(self, name: str, *, uuid: str | None = None, paused: bool = False) -> bool:
        xml = self.definition(name, uuid=uuid or "") or ""
        is_off = super().start(name, uuid=uuid, paused=paused)
        if is_off and uuid is not None:
            try:
                domains.start(self._machine, uuid, name, devices_of(xml), pages_of(xml), nodes_kib_of(xml), xml=xml)
            except domains.StartRefused as refused:
                super().destroy(name, uuid=uuid)
                raise DomainRejected(str(refused)) from refused
        return is_off

    def shutdown(self, name: str, timeout_s: float, *, uuid: str | None = None) -> bool:
        return self._ended(super().shutdown(name, timeout_s, uuid=uuid))

    def destroy(self, name: str, *, uuid: str | None = None) -> bool:
        return self._ended(super().destroy(name, uuid=uuid))

    def _ended(self, changed: bool) -> bool:
        domains.end(self._machine, {one.uuid for one in self.domains() if one.state.is_active()})
        return changed


@functools.cache
def _new_home() -> Path:
    """An empty store and an authority, which take most of a second to make."""
    home = Path(_HOMES.name)
    with open_store(f"sqlite:///{home}/store.db").reading():
        Authority(home / "authority").create()
    return home


_HOMES = tempfile.TemporaryDirectory(prefix="vgpuctl-home-")


class MachineInProcess:
    """One machine, an inventory with it, and a store. fault: called with each step before and after it is taken."""

    def __init__(self, home: Path, mix: str) -> None:
        home.mkdir()
        self.home = home
        self.machine = Machine(home / HOST, mix, host=PatientHost)
        self.machine.host.own_program = lambda: b"the agent"  # type: ignore[method-assign]
        self.inventory = home / "inventory"
        (self.inventory / "host_vars").mkdir(parents=True)
        (self.inventory / "hosts.yml").write_text(f"all: {{hosts: {{{HOST}: {{ansible_host: 192.0.2.1}}}}}}\n")
        shutil.copytree(_new_home(), home, dirs_exist_ok=True)
        self._libvirt = _Libvirt(self.machine).__enter__()
        self.fault: Callable[[str, int], None] = lambda _moment, _number: None
        self._steps = 0

    def declare(self, layout: dict[str, Any]) -> None:
        """Write the host's variable `vgpu`."""
        text = json.dumps({"vgpu": {"version": 1, **layout}})
        (self.inventory / "host_vars" / f"{HOST}.yml").write_text(text)

    def fail_at(self, number: int | None, *, is_done: bool = False) -> None:
        """Let the step of this number, from 0, fail from now on; is_done: after the machine has taken it."""
        self._steps = 0

        def fault(moment: str, step: int) -> None:
            if step == number and moment == ("after" if is_done else "before"):
                raise Problem(ProblemCode.READ_BACK_DIFFERS, f"fault {moment} step {step}")

        self.fault = fault

    def answer(self, request: Request) -> Reply:
        """The answer of the agent on the machine."""
        if request.call != "apply" or request.dry_run:
            return answer(self.machine.host, request)
        number, self._steps = self._steps, self._steps + 1
        try:
            self.fault("before", number)
            reply = answer(self.machine.host, request)
            if reply.problem is None:
                self.fault("after", number)
        except Problem as problem:
            return Reply("", self.machine.host.writes, problem=problem)
        return reply

    def services(self) -> Services:
        """The services of one command."""
        database = f"sqlite:///{self.home}/store.db"
        services = Services(
            Openers(
                inventory=lambda: load_inventory([str(self.inventory)]),
                store=lambda: open_store(database),
                store_place=lambda: cast(StorePlace, None),
                session=lambda _inventory, name: HostSession(
                    name,
                    cast(Any, _Connection(self)),
                    AgentClient,
                    lambda _uri, _host: self._libvirt,
                ),
                authority=lambda: Authority(self.home / "authority"),
            ),
            forks=1,
            say=lambda _text: None,
        )
        return services
