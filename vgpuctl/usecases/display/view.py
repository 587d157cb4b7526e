# SPDX-License-Identifier: Apache-2.0
"""view: the display of a running VM, on a socket of this machine."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vgpuctl.errors import CommandFailed, GuestError, StateError
from vgpuctl.guests.facts.graphics_facts import GraphicsFact, graphics_of, has_picture
from vgpuctl.model.display import DisplayKind
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.vm import Vm
from vgpuctl.usecases.running.services import Services

if TYPE_CHECKING:
    from vgpuctl.hosts.graphics_tunnel import GraphicsSource

_GREETING = b"RFB "
_GREETING_S = 20.0


@dataclass(frozen=True)
class OpenedDisplay:
    """The display of a VM. kind: the protocol that its viewer has to speak."""

    vm: Vm
    kind: DisplayKind
    source: "GraphicsSource"


def view(services: Services, vm: Vm, *, way: str, only: DisplayKind | None = None) -> OpenedDisplay:
    """Open the display of a running VM, and note who did. way: how it is shown, for the event. only: its protocol.

    The server's greeting is read once, so that what does not work is said before a viewer is started.
    Raises StateError for a VM without display or that does not run, CommandFailed and what the connection raises.
    """
    host = services.host(vm.host)
    graphics = graphics_of(running_xml(services, vm), uuid=vm.uuid)
    if graphics is None:
        raise StateError(
            f"VM {vm.printed_name} has no display",
            hint=f"`vgpuctl set-console {vm.printed_name} emulated` gives it one at its "
            "next start; `vgpuctl console` shows its serial console now",
        )
    if only not in (None, graphics.kind):
        raise StateError(
            f"VM {vm.printed_name} has a {graphics.kind} display, and this needs {only}", hint="leave out --web"
        )
    source = host.connection.graphics(vm.uuid, python=host.agent.find_python(), index=graphics.index)
    _require_greeting(vm, graphics, source)
    note_view(services, vm, f"{graphics.kind}, {way}")
    return OpenedDisplay(vm, graphics.kind, source)


def note_view(services: Services, vm: Vm, detail: str) -> None:
    """Record that somebody looks at the screen of a tenant's VM; the event has the operator's name."""
    with services.store.transaction() as session:
        session.add_vm_event(EventKind.VM_VIEWED, vm, detail, after={"viewed": detail})


def running_xml(services: Services, vm: Vm, *, needs_picture: bool = False) -> str:
    """The XML of a VM's running domain. needs_picture: refuse one that has nothing of which a picture can be taken.

    Raises StateError for a VM that does not run or shows nothing, GuestError when its host does not know it.
    """
    hypervisor = services.host(vm.host).hypervisor
    state = hypervisor.state(vm.domain_name, uuid=vm.uuid)
    if state is None:
        raise GuestError(f"{vm.printed_name} has no domain on {vm.host}", hint="run `vgpuctl repair`")
    if not state.is_active():
        raise StateError(
            f"VM {vm.printed_name} does not run: libvirt says {state}",
            hint=f"start it with `vgpuctl start-vm {vm.printed_name}`",
        )
    xml = hypervisor.xml(vm.domain_name)
    if xml is None:
        raise GuestError(f"{vm.printed_name} has no domain on {vm.host}", hint="run `vgpuctl repair`")
    if needs_picture and not has_picture(xml):
        raise StateError(
            f"VM {vm.printed_name} has no screen: neither an emulated adapter nor a vGPU that the console shows",
            hint=f"`vgpuctl set-console {vm.printed_name} emulated` gives it one at its "
            "next start; `vgpuctl console` with --log shows what its serial console printed",
        )
    return xml


def _require_greeting(vm: Vm, graphics: GraphicsFact, source: "GraphicsSource") -> None:
    """A VNC server speaks first; a SPICE server waits for its client."""
    if graphics.kind is not DisplayKind.VNC:
        return
    greeting = source.check(_GREETING_S)
    if not greeting.startswith(_GREETING):
        raise CommandFailed(
            f"{vm.host}: the display of {vm.printed_name} does not speak VNC: it said {greeting[:40]!a}"
        )
