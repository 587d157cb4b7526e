# SPDX-License-Identifier: Apache-2.0
"""console: a VM's serial console, live or as a log."""

import time

from vgpuctl.errors import CommandFailed, GuestError
from vgpuctl.guests.libvirtd.console import Console
from vgpuctl.model.vm import Vm
from vgpuctl.usecases.running.services import Services

MOST_LOG = 8 * 2**20


def console(services: Services, vm: Vm, *, force: bool) -> Console:
    """Open the serial console of a running VM. force: end another session that has it."""
    return services.host(vm.host).hypervisor.console(vm.domain_name, force=force)


def wait_for_console(services: Services, vm: Vm, *, timeout_s: float = 120.0) -> None:
    """Return when the guest's console log is no longer empty. Raises GuestError after timeout_s."""
    hypervisor = services.host(vm.host).hypervisor
    deadline = time.monotonic() + timeout_s
    services.say(f"{vm.printed_name}: waiting for the guest's console")
    while not read_console_log(services, vm):
        if time.monotonic() > deadline:
            raise GuestError(
                f"{vm.printed_name} printed nothing on its console in {timeout_s:.0f} s (libvirt says "
                f"{hypervisor.state(vm.domain_name)})",
                hint=f"look at it with `vgpuctl console {vm.printed_name}`",
            )
        time.sleep(0.5)


def read_console_log(services: Services, vm: Vm) -> bytes:
    """Read the guest's output on its serial console since the VM was defined: the last MOST_LOG bytes.

    Raises CommandFailed when the host cannot read the log.
    """
    path = f"/var/log/libvirt/qemu/{vm.domain_name}-serial.log"
    read = services.host(vm.host).connection.run(["tail", "-c", str(MOST_LOG), "--", path], timeout_s=30)
    if read.exit_status:
        answer = read.stderr.decode(errors="replace").strip()
        raise CommandFailed(f"cannot read {path} on {vm.host}: {answer}")
    return read.stdout
