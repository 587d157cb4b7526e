# SPDX-License-Identifier: Apache-2.0
"""Whether the state of a VM's vGPUs came along when it moved or was resumed.

QEMU resets a device whose state could not be loaded, says so in its log, and lets the guest go on: libvirt reports a
success (reference/moves 3.1, row 9). That log is the one witness; one that was not read proves nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.agent.wire.check_ids import CheckId
from vgpuctl.errors import GuestError, VgpuctlError
from vgpuctl.model.event import Event, EventFilter
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.vm import MUST_RESTART, Vm
from vgpuctl.store.store import Session
from vgpuctl.usecases.running.services import HostSession, Services


@dataclass(frozen=True)
class CarriedState:
    """What the host of a VM says about the state that came with it.

    lost: what says that a vGPU was reset, or that something promised is missing. unread: what could not be looked at.
    ended: what says that the VM does not run any more; of its vGPUs nothing is known then.
    """

    lost: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    ended: str | None = None

    @property
    def doubt(self) -> str | None:
        """What is wrong with the VM, or is not known, in words; None where its state is known to have come."""
        if self.ended:
            return f"it has ended there since: {self.ended}"
        if self.lost:
            return f"it lost the state of its vGPU on the way and {MUST_RESTART}: {self.lost[0]}"
        return f"it was not verified: {self.unread[0]}" if self.unread else None

    @property
    def doubt_of_stayed(self) -> str | None:
        """What is wrong, or not known, of a VM that did not leave its host, in words; None if its vGPUs are whole."""
        if self.lost:
            return f"QEMU has reset its vGPU, and it {MUST_RESTART}: {self.lost[0]}"
        return f"it is not known whether QEMU has reset its vGPU: {self.unread[0]}" if self.unread else None

    def require(self, vm: Vm) -> None:
        """Raise GuestError for a VM that runs, and is not known to be as it was."""
        if self.ended:
            raise GuestError(
                f"{vm.printed_name} came to {vm.host}, but {self.doubt}",
                hint=f"see /var/log/libvirt/qemu/{vm.domain_name}.log on {vm.host};"
                f" `vgpuctl start-vm {vm.printed_name}` boots it",
            )
        if self.doubt is not None:
            raise GuestError(
                f"{vm.printed_name} runs on {vm.host}, but {self.doubt}",
                context=[*self.lost, *self.unread][1:],
                hint=f"`vgpuctl check-vm {vm.printed_name}` looks again; "
                f"`vgpuctl restart-vm {vm.printed_name}` gives its guest a vGPU that works",
            )


def look_at_state(host: HostSession, vm: Vm) -> CarriedState:
    """Read the log of a VM's QEMU since its start. Never raises: the VM runs, whatever is found."""
    try:
        seen = host.agent.diagnostics()
    except VgpuctlError as silent:
        return CarriedState(unread=(silent.message,))
    if vm.domain_name not in seen.qemu_logs:
        return CarriedState(unread=(f"the log of its QEMU on {vm.host} could not be read",))
    found = [one.text for one in seen.lines if (one.check, one.source) == (CheckId.VGPU_STATE_LOST, vm.domain_name)]
    return CarriedState(tuple(found))


def note_lost_state(services: Services, vm: Vm, lost: Sequence[str], source: str | None = None) -> None:
    """Record that a VM lost the state of its vGPU: on its way from a host, or when it was resumed.

    The drivers of both hosts go with it: as long as they are the same, no VM moves live between these hosts.
    """
    if not lost:
        return
    with services.store.transaction() as session:
        where: dict[str, str] = {}
        for end, name in (("from", source), ("to", vm.host)) if source is not None else ():
            known = session.facts(str(name))
            driver = None if known is None else known.facts.nvidia_driver
            where |= {f"{end}_host": str(name), f"{end}_driver": str(driver)}
        session.add_vm_event(EventKind.VGPU_STATE_LOST, vm, lost[0], before=where, after={"lines": list(lost)})


def state_after_failure(
    services: Services, host: HostSession, vm: Vm, error: BaseException | None = None
) -> CarriedState:
    """Look whether QEMU reset a vGPU of a VM that did not leave its host. lost: only what no event tells yet.

    A vGPU whose driver refuses to save its state is reset on its old host: the move or suspension fails, and the guest
    runs on without it. error: of the command, which then says so too, and says so if the log could not be read.
    """
    with services.store.reading() as session:
        if not session.leases(vm_uuid=vm.uuid):
            return CarriedState()
        told = session.events(
            None, EventFilter((vm.printed_name,), (EventKind.VGPU_STATE_LOST,), tenant=vm.request.tenant)
        )
    seen = look_at_state(host, vm)
    known = {line for one in told for line in _lines_of(one)}
    state = CarriedState(tuple(one for one in seen.lost if one not in known), seen.unread)
    if state.doubt_of_stayed is not None and isinstance(error, VgpuctlError):
        error.message = f"{error.message}; {state.doubt_of_stayed}"
        error.hint = f"`vgpuctl restart-vm {vm.printed_name}` gives its guest a vGPU that works"
    return state


def _lines_of(event: Event) -> Sequence[str]:
    lines = event.after.get("lines")
    return lines if isinstance(lines, list) else ()


def add_loss(session: Session, vm: Vm, lost: Sequence[str]) -> None:
    """Record within a transaction that a VM lost the state of its vGPU where it runs."""
    if lost:
        session.add_vm_event(EventKind.VGPU_STATE_LOST, vm, lost[0], before={}, after={"lines": list(lost)})
