# SPDX-License-Identifier: Apache-2.0
"""check-hosts --prepare: everything that hosts lack for vgpuctl, told before anything is changed.

Plain sh looks at a host first, which needs neither Python nor root nor libvirt; then the agent, where it runs.
"""

from dataclasses import dataclass, replace

from vgpuctl.errors import BecomeFailed, HostError, PythonMissing, VgpuctlError
from vgpuctl.guests.libvirtd.host_networks import networks_of
from vgpuctl.hosts.connection import Connection
from vgpuctl.hosts.fleet import HostResult
from vgpuctl.hosts.preparation_probe import probe
from vgpuctl.model.layout import HostLayout
from vgpuctl.planner.doctor import Finding, Severity
from vgpuctl.planner.doctor.prerequisites import FailedAttempt, Newcomer
from vgpuctl.planner.doctor.prerequisites_table import look_for_missing
from vgpuctl.usecases.host.check_hosts import examine_host
from vgpuctl.usecases.running.services import Services

_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class PreparedHost:
    """One host. operating_system: its name for people. has_agent: the agent ran, so every check was made."""

    host: str
    operating_system: str
    has_agent: bool
    findings: tuple[Finding, ...]

    @property
    def is_ready(self) -> bool:
        """True if nothing is missing that vgpuctl cannot do without."""
        return not any(finding.severity is Severity.ERROR for finding in self.findings)


def prepare_hosts(services: Services) -> list[HostResult[PreparedHost]]:
    """Look for what every chosen host lacks; nothing is written on them. Raises InventoryError for a bad layout."""
    layouts = {name: services.inventory.layout(name) for name in services.hosts()}
    services.open_store()

    def work(name: str) -> PreparedHost:
        return _look_at(services, name, layouts[name])

    return services.on_hosts(list(layouts), work)


def _look_at(services: Services, name: str, layout: HostLayout | None) -> PreparedHost:
    session = services.host(name)
    target = session.connection.target
    there = probe(session.connection)
    host = Newcomer(
        there,
        layout,
        interpreter=target.python_interpreter,
        user=target.user or "",
        becomes=target.become,
        sudo=_try_sudo(session.connection) if target.become else None,
    )
    findings: tuple[Finding, ...] = ()
    has_agent = False
    if host.sudo is None:
        try:
            _seen, findings = examine_host(services, name, layout)
            has_agent = True
        except VgpuctlError as error:
            host = replace(host, agent=_refusal(error), lacks_python=isinstance(error, PythonMissing))
        host = replace(host, networks=_networks(services, name) if there.sockets else None)
    services.forget_host(name)
    return PreparedHost(name, there.operating_system, has_agent, look_for_missing(host, findings))


def _try_sudo(connection: Connection) -> FailedAttempt | None:
    """Run a command that does nothing as root. Raises HostError for anything but a refusal."""
    try:
        connection.run(["true"], timeout_s=_TIMEOUT_S, become=True)
    except BecomeFailed as error:
        return _refusal(error)
    return None


def _networks(services: Services, name: str) -> dict[str, bool] | None:
    """libvirt's networks, asked without the agent; None where libvirt does not answer, which is a finding elsewhere."""
    try:
        return networks_of(services.host(name).hypervisor)
    except VgpuctlError as error:
        if isinstance(error, HostError) and not services.is_connected(name):
            raise
        return None


def _refusal(error: VgpuctlError) -> FailedAttempt:
    return FailedAttempt(error.message, error.hint or "")
