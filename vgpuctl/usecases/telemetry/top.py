# SPDX-License-Identifier: Apache-2.0
"""top: what each share uses of what was promised, with sums by GPU and by tenant, from the hosts' last readings."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from vgpuctl.agent.wire.readings import GpuReadings, Measured
from vgpuctl.errors import NotFound
from vgpuctl.model.lease import Lease
from vgpuctl.model.natural_order import natural, natural_path
from vgpuctl.model.restriction import WHOLE_HOST, Restriction, RestrictionKind, restrictions_on
from vgpuctl.sharing.kinds import takes_card
from vgpuctl.sharing.measured import MeasuredShare, join_leases
from vgpuctl.usecases.observed.fleet_reader import HostSnapshot
from vgpuctl.usecases.running.services import Services

_GRAVEST_FIRST = (RestrictionKind.FENCE, RestrictionKind.QUARANTINE, RestrictionKind.DRAIN, RestrictionKind.CORDON)


@dataclass(frozen=True)
class TopShare:
    """One share. promised_used: part of its promised compute time that it uses, above 1 where it uses idle time.

    utilization, steal: parts of the whole GPU. Values are None where nothing was measured, and missing says why.
    licence: its state by the host's NVML. licence_pool: where its VM holds a seat; None without one.
    """

    tenant: str
    vm: str
    host: str
    gpu: str
    profile: str
    device: str
    promised_used: float | None
    promised: float | None
    utilization: float | None
    framebuffer_used_bytes: float | None
    framebuffer_size_bytes: float | None
    steal: float | None
    licence: str | None
    licence_pool: str | None
    guest_driver: str | None
    missing: str | None


@dataclass(frozen=True)
class TopGpu:
    """One GPU. shares: leases on it. missing: why readings are missing.

    closed: why it takes no new VM, in a word: fence, quarantine, drain or cordon, of its host too.
    """

    host: str
    gpu: str
    model: str | None
    shares: int
    utilization: float | None
    framebuffer_used_bytes: float | None
    framebuffer_total_bytes: float | None
    power_watts: float | None
    temperature_celsius: float | None
    missing: str | None
    closed: str | None


@dataclass(frozen=True)
class TopTenant:
    """The sums of one tenant. measured: how many of its shares have a utilization.

    utilization: in whole GPUs. promised_used: utilization by promise, of the shares that have both.
    """

    tenant: str
    shares: int
    measured: int
    promised_used: float | None
    utilization: float | None
    framebuffer_used_bytes: float
    framebuffer_size_bytes: float


@dataclass(frozen=True)
class TopHost:
    """How a host answered. age_s: of its last readings, None without any; error: of the last attempt."""

    host: str
    age_s: float | None
    error: str | None


@dataclass(frozen=True)
class TopView:
    """Everything at one moment. at: seconds since the epoch, UTC, by the store's clock."""

    at: float
    hosts: tuple[TopHost, ...] = ()
    shares: tuple[TopShare, ...] = ()
    gpus: tuple[TopGpu, ...] = ()
    tenants: tuple[TopTenant, ...] = ()


@dataclass(frozen=True)
class TopFilter:
    """Show one tenant, or some hosts; the default is everything."""

    tenant: str | None = None
    hosts: Sequence[str] = field(default_factory=tuple)


def top_hosts(services: Services, wanted: TopFilter) -> list[str]:
    """The hosts to read. Raises NotFound for a tenant or host that is not there."""
    names = list(services.hosts())
    unknown = [one for one in wanted.hosts if one not in names]
    if unknown:
        raise NotFound(f"the inventory has no host {unknown[0]!a}", hint="see `vgpuctl list-hosts`")
    names = [one for one in names if not wanted.hosts or one in wanted.hosts]
    if wanted.tenant is None:
        return names
    with services.store.reading() as session:
        session.tenant(wanted.tenant)
        used = {lease.host for lease in session.leases() if lease.tenant == wanted.tenant}
    return [one for one in names if one in used]


def make_top(services: Services, wanted: TopFilter, snapshots: Iterable[HostSnapshot]) -> TopView:
    """Join readings with the leases of the store. Older readings of a silent host do not count."""
    by_host = {one.host: one for one in snapshots}
    with services.store.reading() as session:
        leases = [one for one in session.leases() if one.host in by_host and wanted.tenant in (None, one.tenant)]
        now = session.now()
        restrictions = session.restrictions()
        pools = {one.vm_uuid: one.pool for one in session.licence_seats() if one.released_at is None}
    fresh = {name: one.readings for name, one in by_host.items() if one.readings is not None and one.error is None}
    shares = [
        _share(one, by_host[one.lease.host], now, pools.get(one.lease.vm_uuid)) for one in join_leases(leases, fresh)
    ]
    return TopView(
        now,
        tuple(_host(by_host[name], now) for name in sorted(by_host, key=natural)),
        tuple(shares),
        tuple(_gpus(by_host, leases, restrictions, now, of_tenant=wanted.tenant is not None)),
        tuple(_tenants(shares)),
    )


def _host(snapshot: HostSnapshot, now: float) -> TopHost:
    age_s = None if snapshot.at is None else max(0.0, now - snapshot.at)
    error = None if snapshot.error is None else snapshot.error.message.removeprefix(f"{snapshot.host}: ")
    return TopHost(snapshot.host, age_s, error)


def _share(one: MeasuredShare, snapshot: HostSnapshot, now: float, pool: str | None) -> TopShare:
    lease, measured = one.lease, one.measured
    return TopShare(
        tenant=lease.tenant,
        vm=lease.vm_name,
        host=lease.host,
        gpu=lease.share.gpu,
        profile=lease.share.profile,
        device=lease.share.vfio_device,
        promised_used=measured.get("share_utilization_ratio"),
        promised=measured.get("promised_ratio"),
        utilization=measured.get("utilization_ratio"),
        framebuffer_used_bytes=measured.get("framebuffer_used_bytes"),
        framebuffer_size_bytes=_size(lease, measured),
        steal=measured.get("steal_ratio"),
        licence=measured.label("license_state"),
        licence_pool=pool,
        guest_driver=measured.label("guest_driver_info"),
        missing=_why(one, snapshot, now),
    )


def _size(lease: Lease, measured: Measured) -> float | None:
    size = measured.get("framebuffer_size_bytes")
    return float(lease.share.framebuffer_mib << 20) if size is None and lease.share.framebuffer_mib else size


def _why(one: MeasuredShare, snapshot: HostSnapshot, now: float) -> str | None:
    """Why a share has no utilization, in a few words."""
    silent = _silence(snapshot, now)
    if silent is not None:
        return silent
    if one.readings is not None:
        return None if one.measured.get("utilization_ratio") is not None else _short(one.measured)
    readings = snapshot.readings
    if readings is not None and all(vm.uuid != one.lease.vm_uuid for vm in readings.vms):
        return "VM off"
    return "in guest" if takes_card(one.lease.share) else "not seen"


def _short(measured: Measured) -> str:
    told = measured.why_missing("utilization_ratio") or "not measured"
    return told.partition(":")[0].replace("-", " ")


def _silence(snapshot: HostSnapshot, now: float) -> str | None:
    if snapshot.error is None and snapshot.readings is not None:
        return None
    if snapshot.error is None:
        return "reading"
    return "no answer" if snapshot.at is None else f"no answer {max(0.0, now - snapshot.at):.0f}s"


def _gpus(
    snapshots: Mapping[str, HostSnapshot],
    leases: Sequence[Lease],
    restrictions: Sequence[Restriction],
    now: float,
    *,
    of_tenant: bool,
) -> Iterable[TopGpu]:
    """Every GPU that its host shows, and those that leases name; of a tenant only the latter."""
    counts: dict[tuple[str, str], int] = {}
    whole = {(lease.host, lease.share.gpu) for lease in leases if takes_card(lease.share)}
    for lease in leases:
        key = (lease.host, lease.share.gpu)
        counts[key] = counts.get(key, 0) + 1
    found: dict[tuple[str, str], GpuReadings | None] = dict.fromkeys(counts)
    for name, snapshot in snapshots.items():
        for gpu in snapshot.readings.gpus if snapshot.readings is not None else ():
            if not of_tenant or (name, gpu.address) in counts:
                found[name, gpu.address] = gpu
    for (host, address), readings in sorted(found.items(), key=lambda one: natural_path("/".join(one[0]))):
        silent = _silence(snapshots[host], now)
        measured = Measured() if readings is None or silent is not None else readings.measured
        unread = None if readings is not None else "in guest" if (host, address) in whole else "not seen"
        yield TopGpu(
            host,
            address,
            None if readings is None else readings.model,
            counts.get((host, address), 0),
            measured.get("utilization_ratio"),
            measured.get("framebuffer_used_bytes"),
            measured.get("framebuffer_total_bytes"),
            measured.get("power_watts"),
            measured.get("temperature_celsius"),
            silent or unread,
            _closed(restrictions, host, address, None if readings is None else readings.uuid),
        )


def _closed(every: Sequence[Restriction], host: str, address: str, uuid: str | None) -> str | None:
    """The gravest restriction of a GPU or its host."""
    of_host = [one for one in every if (one.host, one.device) == (host, WHOLE_HOST)]
    kinds = {one.kind for one in (*of_host, *restrictions_on(every, host, address, uuid))}
    return next((kind.value for kind in _GRAVEST_FIRST if kind in kinds), None)


def _tenants(shares: Sequence[TopShare]) -> Iterable[TopTenant]:
    by_tenant: dict[str, list[TopShare]] = {}
    for one in shares:
        by_tenant.setdefault(one.tenant, []).append(one)
    for tenant, each in sorted(by_tenant.items(), key=lambda one: natural(one[0])):
        used = [one.utilization for one in each if one.utilization is not None]
        both = [(one.utilization, one.promised) for one in each if one.utilization is not None and one.promised]
        promised = sum(part for _, part in both)
        yield TopTenant(
            tenant,
            len(each),
            len(used),
            sum(utilization for utilization, _ in both) / promised if promised else None,
            sum(used) if used else None,
            sum(one.framebuffer_used_bytes or 0.0 for one in each),
            sum(one.framebuffer_size_bytes or 0.0 for one in each),
        )
