# SPDX-License-Identifier: Apache-2.0
"""check-hosts: whether every host is in its declared layout, in health, and after a reboot as it was before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vgpuctl.agent.wire.check_ids import CheckId
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.ovn import TunnelProbe
from vgpuctl.errors import StateError, VgpuctlError
from vgpuctl.hosts.fleet import HostResult
from vgpuctl.model.layout import HostLayout
from vgpuctl.model.libvirt_units import BOTH
from vgpuctl.planner.doctor import DomainDiagnostics, Examined, Finding, Severity, TunnelState, examine, health_states
from vgpuctl.planner.doctor.libvirt_checks import daemon_of
from vgpuctl.planner.layout.fleet_values import FleetValues
from vgpuctl.planner.layout.result import Difference, HostPlan
from vgpuctl.usecases.declared.fleet_values import read_fleet_values
from vgpuctl.usecases.declared.installs import PlannedInstall
from vgpuctl.usecases.declared.layout_comparison import compare_host
from vgpuctl.usecases.declared.layout_records import shares_made
from vgpuctl.usecases.observed.function_records import function_problems
from vgpuctl.usecases.observed.gpu_health import policy_of, read_health
from vgpuctl.usecases.observed.host_snapshot import Snapshot, compare, save_snapshot, saved_snapshot, snapshot_of
from vgpuctl.usecases.observed.observations import read_facts
from vgpuctl.usecases.observed.strays import look_for_strays
from vgpuctl.usecases.running.services import Services

# Check whether tunnels between hosts carry packets: both ends send, and Open vSwitch's counters show the arrivals.
#
# Only this check sees a firewall that passes ping and drops the tunnels' UDP port.
# The counters of the first round are read before the second one sends, and those of the third after it has.
_ROUNDS = 3


def check_tunnels(services: Services, names: Sequence[str]) -> dict[str, tuple[TunnelState, ...]]:
    """Probe the tunnels of hosts that have a network declared. Returns what each host's tunnels are like.

    A host that cannot be read is left out; what it has is told where it is checked.
    """
    rounds: list[dict[str, TunnelProbe]] = []
    for _ in range(_ROUNDS):
        asked = list(rounds[-1]) if rounds else list(names)
        results = services.on_hosts(asked, lambda name: services.host(name).agent.tunnels())
        rounds.append({one.name: one.value for one in results if one.value is not None})
    return tunnel_states(rounds[0], rounds[-1])


def tunnel_states(
    first: Mapping[str, TunnelProbe], last: Mapping[str, TunnelProbe]
) -> dict[str, tuple[TunnelState, ...]]:
    """Scorer two probes of both ends, between which everybody sent packets to everybody."""
    senders = {ended.address: {way.remote for way in ended.ways} for ended in last.values()}
    states = {}
    for name, ended in last.items():
        before = {way.remote: way.received for way in first[name].ways}
        states[name] = tuple(
            TunnelState(
                way.remote,
                way.port,
                # Only an end that was seen to send can be said to be unheard.
                is_silent=ended.address in senders.get(way.remote, ()) and before.get(way.remote) == way.received,
                refused=way.refused,
                bfd=way.bfd,
            )
            for way in ended.ways
        )
    return states


@dataclass(frozen=True)
class CheckedHost:
    """One host. plan: None where no layout is declared. since_reboot: None where that was not asked.

    installs: files of the layout that are not as a run would install them.
    """

    host: str
    plan: HostPlan | None
    findings: tuple[Finding, ...]
    since_reboot: tuple[Difference, ...] | None = None
    installs: tuple[PlannedInstall, ...] = ()

    @property
    def is_in_layout(self) -> bool:
        """True if a run would change nothing on the host; also where no layout is declared."""
        return not self.installs and (self.plan is None or self.plan.is_in_layout)

    @property
    def has_drifted(self) -> bool:
        """True if anything is not as declared, or not as before the reboot."""
        return bool(self.since_reboot) or not self.is_in_layout

    @property
    def is_healthy(self) -> bool:
        """True if no check found an error; warnings and notes do not count."""
        return not any(finding.severity is Severity.ERROR for finding in self.findings)


def check_hosts(
    services: Services, *, after_reboot: bool = False, take_snapshot: bool = False, boot: bool = True
) -> list[HostResult[CheckedHost]]:
    """Check every chosen host, also those without a layout; nothing is written on them.

    after_reboot: compare with the snapshot that apply-hosts or an earlier check took. take_snapshot: take one now.
    boot: whether the layouts are to be restored at boot.
    Raises InventoryError for a layout that cannot be read.
    """
    layouts = {name: services.inventory.layout(name) for name in services.hosts()}
    services.open_store()
    chassis = [name for name, layout in layouts.items() if layout is not None and layout.network is not None]
    tunnels = check_tunnels(services, chassis) if chassis else {}
    fleet = read_fleet_values(services)

    def work(name: str) -> CheckedHost:
        states = tunnels.get(name, ())
        return _check(
            services, name, layouts, fleet, states, after_reboot=after_reboot, take_snapshot=take_snapshot, boot=boot
        )

    return services.on_hosts(list(layouts), work)


def _check(
    services: Services,
    name: str,
    layouts: Mapping[str, HostLayout | None],
    fleet: FleetValues,
    tunnels: Sequence[TunnelState],
    *,
    after_reboot: bool,
    take_snapshot: bool,
    boot: bool,
) -> CheckedHost:
    layout = layouts[name]
    services.inventory.verify(name)
    seen, findings = examine_host(services, name, layout, tunnels)
    now = snapshot_of(seen.facts, active_names(seen.domains))
    since = _compare(services, name, now) if after_reboot else None
    if take_snapshot:
        save_snapshot(services, name, now)
    compared = None if layout is None else compare_host(services, name, layout, seen.facts, fleet, boot=boot)
    services.forget_host(name)
    if compared is None:
        return CheckedHost(name, None, findings, since)
    return CheckedHost(name, compared.plan, findings, since, compared.installs)


def examine_host(
    services: Services, name: str, layout: HostLayout | None, tunnels: Sequence[TunnelState] = ()
) -> tuple[Examined, tuple[Finding, ...]]:
    """Read a host by its agent and libvirt: what was read, with every finding. Raises what the agent raises."""
    host = services.host(name)
    facts = read_facts(services, name)
    diagnostics = host.agent.diagnostics()
    health = read_health(services, name)
    domains, failure = _read_domains(services, name)
    with services.store.reading() as session:
        leases = session.leases(host=name)
        vms = frozenset(vm.uuid for vm in session.vms(host=name))
        restrictions = session.restrictions()
        strays = (session.vm_of(one.uuid) for one in domains or () if one.uuid not in vms)
        elsewhere = {vm.uuid: vm.host for vm in strays if vm is not None and vm.live_target != name}
    made = shares_made(services, name, facts)
    functions = function_problems(services, name)
    seen = Examined(facts, diagnostics, layout, leases, made, domains, tunnels, vms, elsewhere, functions)
    policy = policy_of(services, name)
    findings = examine(seen) + health_states(health, policy, name, facts.gpus, restrictions)
    if failure is not None:
        fix = (failure.hint or BOTH).replace(BOTH, f"`systemctl status {daemon_of(seen)}` on the host")
        findings += (Finding(CheckId.LIBVIRT, Severity.ERROR, "host", failure.message, fix),)
    return seen, findings


def active_names(domains: Sequence[DomainDiagnostics] | None) -> tuple[str, ...] | None:
    """Names of the running domains."""
    return None if domains is None else tuple(sorted(domain.name for domain in domains if domain.is_active))


def note_state(services: Services, name: str, facts: HostFacts) -> None:
    """Take the snapshot that `check-hosts --after-reboot` compares with."""
    domains, _failure = _read_domains(services, name)
    save_snapshot(services, name, snapshot_of(facts, active_names(domains)))


def _compare(services: Services, name: str, now: Snapshot) -> tuple[Difference, ...]:
    before = saved_snapshot(services, name)
    if before is None:
        raise StateError(
            f"{name}: no snapshot was taken before", hint="apply-hosts takes one, and `check-hosts --snapshot`"
        )
    found = compare(before, now)
    if before.boot_id == now.boot_id:
        found = (Difference(None, "boot", "another boot than the snapshot's", "the same boot"), *found)
    return found


def _read_domains(services: Services, name: str) -> tuple[tuple[DomainDiagnostics, ...] | None, VgpuctlError | None]:
    """The domains; a host whose libvirt does not answer is checked without them, and that is a finding."""
    try:
        hypervisor = services.host(name).hypervisor
        facts, flagged = hypervisor.domains(), hypervisor.autostarted()
    except VgpuctlError as error:
        return None, error
    look_for_strays(services, name, facts)
    return tuple(
        DomainDiagnostics(
            one.name,
            one.uuid,
            one.state.is_active(),
            tuple(device.device for device in one.hostdevs),
            one.uuid in flagged,
            one.metadata is not None,
        )
        for one in facts
    ), None
