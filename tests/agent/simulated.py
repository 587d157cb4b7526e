# SPDX-License-Identifier: Apache-2.0
"""The agent on a machine that has NVML: the simulated one of the lab, whose cards follow NVIDIA's rules."""

from pathlib import Path

from vgpuctl.agent.dispatch import answer, read_facts
from vgpuctl.agent.wire.envelope import Problem, Reply, Request
from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.agent.wire.ovn import OvnFacts
from vgpuctl.agent.wire.steps import Step
from vgpuctl_lab.simulated.machine import faults
from vgpuctl_lab.simulated.machine import shape as shapes
from vgpuctl_lab.simulated.machine.host_adapter import SimulatedHost
from vgpuctl_lab.simulated.machine.programs import enable_vfs, run_program
from vgpuctl_lab.simulated.machine.shape import CardShape
from vgpuctl_lab.simulated.machine.state import make
from vgpuctl_lab.simulated.mix import parse_mix, shape_of

PF = "0000:41:00.0"
VM = "11111111-2222-4333-8444-555555555555"


class PatientHost(SimulatedHost):
    """A machine whose clock goes on only in `wait`, which ends at once."""

    waited_s = 0.0

    def monotonic(self) -> float:
        return self.waited_s

    def wait(self, seconds: float) -> None:
        self.waited_s += seconds
        with self.machine.change() as state:
            state.skipped_s += seconds


class Machine:
    """A machine with one card and the agent on it."""

    def __init__(
        self, folder: Path, board: str, *, with_vfs: bool = False, host: type[SimulatedHost] = SimulatedHost
    ) -> None:
        folder.mkdir(exist_ok=True)
        shape = shape_of("gpu1", parse_mix(board)[0], {}, with_vfs=with_vfs)
        shapes.write(shape, folder / "machine.json")
        self.files = make(folder, shape)
        enable_vfs(self.files)
        self.host = host(str(folder))

    def reboot(self) -> None:
        """Start the machine again, as `machine.json` has it now, with its VFs."""
        self.files.reboot()
        enable_vfs(self.files)
        self.host = type(self.host)(str(self.files.folder))

    @property
    def card(self) -> CardShape:
        return self.files.shape.cards[0]

    def take(self, *steps: Step, dry_run: bool = False) -> Reply:
        """Let the agent apply steps."""
        return answer(self.host, Request("apply", steps, dry_run=dry_run))

    def done(self, *steps: Step) -> bool:
        """Let the agent apply steps that it must not refuse; whether the last one changed anything."""
        reply = self.take(*steps)
        assert reply.problem is None, reply.problem
        return reply.changes[-1].changed

    def refused(self, *steps: Step, dry_run: bool = False) -> Problem:
        """The problem that the last step must end with."""
        reply = self.take(*steps, dry_run=dry_run)
        assert reply.problem is not None, reply.changes
        return reply.problem

    def begin(self, kind: str, value: int = 1) -> None:
        """Let a fault of the card begin; value 0 ends it."""
        with self.files.change() as state:
            faults.set_on_card(self.files, state, self.card, kind, value)

    def run(self, *argv: str) -> tuple[int, str, str]:
        """Run a program of the machine: (exit status, stdout, stderr)."""
        return run_program(self.files, argv)

    def ovn(self) -> OvnFacts:
        """Facts of Open vSwitch and OVN, as the agent reads them."""
        found = read_facts(self.host).ovn
        assert found is not None
        return found

    def gpu(self) -> Gpu:
        """The agent's reading of the card."""
        return read_facts(self.host).gpus[0]

    def layout(self) -> list[str]:
        """The GPU instances as `1g.5gb@0`."""
        mig = self.gpu().mig
        return [f"{one.profile}@{one.start}" for one in mig.instances] if mig else []

    def type_id(self, name: str) -> str:
        """The id of a vGPU type."""
        return next(str(each.type_id) for each in self.card.types if each.full_name.endswith(f" {name}"))

    def creatable(self, *names: str) -> list[int]:
        """How many more of each type the agent says can be created."""
        types = self.gpu().types
        return [sum(each.creatable for each in types if f" {each.name}".endswith(f" {name}")) for name in names]
