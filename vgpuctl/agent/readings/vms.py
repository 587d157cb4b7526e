# SPDX-License-Identifier: Apache-2.0
"""Readings of running VMs by libvirt's statistics: one `virsh domstats` for all of them (telemetry reference 3)."""

import re
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from vgpuctl.agent.facts import hugepages
from vgpuctl.agent.facts.pools import FileSystems
from vgpuctl.agent.host import Host
from vgpuctl.agent.mistakes import guarded
from vgpuctl.agent.readings import ports
from vgpuctl.agent.readings.domains import RunningDomain
from vgpuctl.agent.readings.recorder import Recorder
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.measure_states import DOMAIN_STATES
from vgpuctl.agent.wire.measures import VM
from vgpuctl.agent.wire.memory import PoolSpace
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.readings import VmReadings

_GROUPS = ("--state", "--cpu-total", "--balloon", "--vcpu", "--interface", "--block")
# --nowait: a domain with a running job, such as a migration, would make all others wait.
COMMAND = ("virsh", "--connect", "qemu:///system", "--readonly", "domstats", "--raw", "--nowait", "--list-active")
_DOMAIN = re.compile(r"Domain: '(.*)'")
_STATISTIC = re.compile(r"  ([a-z0-9.-]{1,64})=(.{0,4096})")
_NUMBER = re.compile(r"[0-9]{1,19}")
_HUGETLB = re.compile(r"^HugetlbPages:\s*([0-9]{1,15}) kB", re.MULTILINE)
_RSS = re.compile(r"^VmRSS:\s*([0-9]{1,15}) kB", re.MULTILINE)
_OUTPUT_AT_MOST, _VMS_AT_MOST, _DEVICES_AT_MOST = 16 << 20, 1024, 32
_LABEL_AT_MOST = 64
# For the question after the UUIDs, however long the statistics took.
_LEAST_S = 1.0
_KIB, _NANO = 1024, 1_000_000_000
_VCPUS_AT_MOST = 4096
# Of all file systems with disks together; one that does not answer takes a part of it, and none the next time.
_ROOMS_LIMIT_S = 10.0
_MEMORY = (
    ("memory_current_bytes", "balloon.current"),
    ("memory_maximum_bytes", "balloon.maximum"),
    ("memory_rss_bytes", "balloon.rss"),
)
_DISK = (
    ("block_read_bytes", "rd.bytes", 1),
    ("block_written_bytes", "wr.bytes", 1),
    ("block_read_requests", "rd.reqs", 1),
    ("block_write_requests", "wr.reqs", 1),
    ("block_read_seconds", "rd.times", _NANO),
    ("block_write_seconds", "wr.times", _NANO),
)
_INTERFACE = (
    ("network_received_bytes", "rx.bytes", 1),
    ("network_sent_bytes", "tx.bytes", 1),
    ("network_received_packets", "rx.pkts", 1),
    ("network_sent_packets", "tx.pkts", 1),
    ("network_receive_errors", "rx.errs", 1),
    ("network_send_errors", "tx.errs", 1),
    ("network_receive_drops", "rx.drop", 1),
    ("network_send_drops", "tx.drop", 1),
)
_NOT_TOLD = "libvirt does not tell it now; while a job such as a migration runs it tells less"


def read(
    host: Host,
    domains: Mapping[str, RunningDomain],
    spaces: Sequence[PoolSpace],
    filesystems: FileSystems,
    unread: List[str],
    *,
    limit_s: float,
) -> List[VmReadings]:
    """Return the readings of every running VM, by name.

    domains: by name, of libvirt's own files. spaces: of the host's pools. limit_s: of virsh.
    """
    end_s = host.monotonic() + limit_s
    try:
        done = host.run([*COMMAND, *_GROUPS], timeout_s=max(round(limit_s), _LEAST_S))
    except Problem as problem:
        unread.append(f"the VMs cannot be measured: {problem.message}")
        return []
    if done.status != 0:
        said = (done.errors.strip().splitlines() or ["nothing"])[-1][:200]
        unread.append(f"the VMs cannot be measured: virsh domstats ended with {done.status} and said {said}")
        return []
    if len(done.output) > _OUTPUT_AT_MOST:
        unread.append(f"the VMs cannot be measured: virsh domstats printed {len(done.output)} characters")
        return []
    told = parse(done.output)
    uuids = {} if all(name in domains for name in told) else _read_uuids(host, unread, end_s)
    rooms: Dict[str, Dict[str, int]] = guarded(
        unread, "the disks of VMs", lambda: read_rooms(host, told, spaces, filesystems, unread), {}
    )
    carried: ports.Carried = ports.NOT_READ
    carried = guarded(unread, "the ports of VMs", lambda: ports.read(host, domains.values()), carried)
    usual_kib = hugepages.read_usual_kib(host) if any(one.page_kib == 0 for one in domains.values()) else None
    found = []
    for name in sorted(told):
        domain = domains.get(name)
        uuid = domain.uuid if domain is not None else uuids.get(name)
        if uuid is not None:
            tenant = None if domain is None else domain.tenant
            recorder = _record(told[name])
            if domain is not None:
                _record_start(recorder, host, domain)
                _record_rss(recorder, host, domain)
                _record_pages(recorder, host, domain, usual_kib)
                ports.record(recorder, domain, carried)
            for filesystem, size in sorted(rooms.get(name, {}).items()):
                recorder.add("disk_allocated_bytes", size, filesystem)
            found.append(VmReadings(uuid, name, tenant, recorder.measured()))
    if len(found) < len(told):
        unread.append(f"{len(told) - len(found)} VMs ended, or libvirt does not tell their UUIDs")
    if len(found) > _VMS_AT_MOST:
        unread.append(f"the host has {len(found)} VMs; the first {_VMS_AT_MOST} are told")
    return found[:_VMS_AT_MOST]


def parse(output: str) -> Dict[str, Dict[str, str]]:
    """Return {domain's name: {statistic: text}}; lines of another form are ignored."""
    found: Dict[str, Dict[str, str]] = {}
    now: Dict[str, str] = {}
    for line in output.splitlines():
        domain = _DOMAIN.fullmatch(line)
        if domain is not None:
            now = found.setdefault(domain[1], {})
            continue
        statistic = _STATISTIC.fullmatch(line)
        if statistic is not None:
            now[statistic[1]] = statistic[2]
    return found


def _read_uuids(host: Host, unread: List[str], end_s: float) -> Dict[str, str]:
    """Ask libvirt for the UUIDs by name: for domains of which it keeps no file that can be read."""
    argv = [*COMMAND[:4], "list", "--uuid", "--name"]
    try:
        done = host.run(argv, timeout_s=max(end_s - host.monotonic(), _LEAST_S))
    except Problem as problem:
        unread.append(problem.message)
        return {}
    found = {}
    for line in done.output.splitlines():
        uuid, _, name = line.strip().partition(" ")
        if name:
            found[name.strip()] = uuid.lower()
    return found


def _record(told: Mapping[str, str]) -> Recorder:
    found = Recorder(VM)
    state = _number(told, "state.state")
    if state is None:
        found.unread("state", _NOT_TOLD)
    else:
        found.add_states(
            "state", DOMAIN_STATES, DOMAIN_STATES[state] if state < len(DOMAIN_STATES) else DOMAIN_STATES[0]
        )
    _add(found, "vcpus", _number(told, "vcpu.current"))
    _add(found, "cpu_seconds", _number(told, "cpu.time"), _NANO)
    # It is run_delay of /proc/PID/task/TID/schedstat, in nanoseconds (measured with libvirt 9.0); virsh's page says µs.
    delays = [_number(told, f"vcpu.{vcpu}.delay") for vcpu in _indices(told, "vcpu", _VCPUS_AT_MOST)]
    known = [delay for delay in delays if delay is not None]
    if known:
        found.add("vcpu_steal_seconds", sum(known) / _NANO)
    else:
        found.lacks("vcpu_steal_seconds", "this libvirt does not tell the delay of virtual CPUs")
    for name, key in _MEMORY:
        _add(found, name, _number(told, key), 1 / _KIB)
    unused = _number(told, "balloon.unused")
    if unused is None:
        found.lacks("memory_unused_bytes", "the guest has no balloon driver that tells it")
    else:
        found.add("memory_unused_bytes", unused * _KIB)
    _record_devices(found, told, "block", _DISK)
    _record_devices(found, told, "net", _INTERFACE)
    return found


def read_rooms(
    host: Host,
    told: Mapping[str, Mapping[str, str]],
    spaces: Sequence[PoolSpace],
    filesystems: FileSystems,
    unread: List[str],
) -> Dict[str, Dict[str, int]]:
    """Return what the disks of each VM take on the file systems and volume groups of pools, by VM and file system.

    A logical volume takes its whole size. Each file system is asked alone: one that does not answer is a sentence in
    `unread`.
    """
    groups = [one for one in spaces if one.is_group]
    known = {one.filesystem for one in spaces}
    disks: Dict[str, Set[str]] = {}
    asked: Dict[str, Set[str]] = {}
    by_folder: Dict[str, Optional[str]] = {}
    found: Dict[str, Dict[str, int]] = {}
    for name, statistics in told.items() if spaces else ():
        for path, size in _disks(statistics):
            group = _pool_around(path, groups)
            if group is not None:
                _add_room(found, name, group.filesystem, size)
                continue
            folder = path.rpartition("/")[0]
            if folder not in by_folder:
                by_folder[folder] = None if filesystems.is_silent(path) else _guess(filesystems, path, spaces)
            filesystem = by_folder[folder]
            if filesystem is not None:
                disks.setdefault(name, set()).add(path)
                asked.setdefault(filesystem, set()).add(path)
    places: Dict[str, Tuple[str, int]] = {}
    end_s = host.monotonic() + _ROOMS_LIMIT_S
    for filesystem, paths in sorted(asked.items()):
        if host.monotonic() > end_s:
            unread.append(f"the disks of VMs on {filesystem} were not read: others took {_ROOMS_LIMIT_S:g} s")
            continue
        try:
            places.update(host.allocated(f"the disks of VMs on {filesystem}", sorted(paths)))
        except Problem as problem:
            unread.append(problem.message)
    for name, own in disks.items():
        for path in own & set(places):
            place, taken = places[path]
            around = None if filesystems.mounts.of(place) else _pool_around(path, spaces)
            on = filesystems.mounts.name_of(place) if around is None else around.filesystem
            if on in known:
                _add_room(found, name, on, taken)
    return found


def _disks(statistics: Mapping[str, str]) -> Iterator[Tuple[str, Optional[int]]]:
    """Yield path and size of each disk that has a path on the host."""
    for number in range(min(_number(statistics, "block.count") or 0, _DEVICES_AT_MOST)):
        path = statistics.get(f"block.{number}.path", "")
        if path.startswith("/"):
            yield path, _number(statistics, f"block.{number}.physical")


def _add_room(found: Dict[str, Dict[str, int]], name: str, filesystem: str, size: Optional[int]) -> None:
    if size is not None:
        rooms = found.setdefault(name, {})
        rooms[filesystem] = rooms.get(filesystem, 0) + size


def _guess(filesystems: FileSystems, path: str, spaces: Sequence[PoolSpace]) -> str:
    """Return the file system of a disk before anybody follows its links, which may hang: of its mount or its pool."""
    mount, around = filesystems.mounts.of(path), _pool_around(path, spaces)
    if around is not None and (mount is None or len(around.path) > len(mount.place)):
        return around.filesystem
    return "/" if mount is None else mount.name()


def _pool_around(path: str, spaces: Sequence[PoolSpace]) -> Optional[PoolSpace]:
    around = [one for one in spaces if path.startswith(one.path.rstrip("/") + "/")]
    return max(around, key=lambda one: len(one.path), default=None)


def _record_start(found: Recorder, host: Host, domain: RunningDomain) -> None:
    """Record when QEMU started, by the kernel: the VM's counters began then (proc(5), stat, field 22)."""

    def start() -> Optional[float]:
        path = f"/proc/{domain.pid}/stat"
        # The program's name is in brackets, and may have brackets and blanks itself.
        words, ticks = host.read(path).rpartition(")")[2].split(), host.clock_ticks()
        if len(words) < 20 or not words[19].isdecimal() or ticks <= 0:
            raise Problem(ProblemCode.UNREADABLE, f"{path} does not tell when the process started", path=path)
        return int(words[19]) / ticks

    if domain.pid is None:
        found.unread("start_since_boot_seconds", "libvirt does not tell the process of the VM")
    else:
        found.ask("start_since_boot_seconds", start)


def _record_rss(found: Recorder, host: Host, domain: RunningDomain) -> None:
    """Record what a VM's QEMU holds where libvirt does not tell it: else a VM with a job would seem to hold nothing."""
    if found.measured().why_missing("memory_rss_bytes") is None or domain.pid is None:
        return
    try:
        held = _RSS.search(host.read(f"/proc/{domain.pid}/status"))
    except Problem:
        return
    if held:
        found.replace_missing("memory_rss_bytes", int(held[1]) * _KIB)


def _record_pages(found: Recorder, host: Host, domain: RunningDomain, usual_kib: Optional[int]) -> None:
    """Record the huge pages that the kernel counts for a VM's QEMU (proc(5), status)."""
    size_kib = domain.page_kib or (usual_kib if domain.page_kib == 0 else None)
    if not size_kib or domain.pid is None:
        return

    def pages() -> None:
        held = _HUGETLB.search(host.read(f"/proc/{domain.pid}/status"))
        if held:
            found.add("hugepages_bytes", int(held[1]) * _KIB, str(size_kib))

    found.ask("hugepages_bytes", pages)


def _record_devices(
    found: Recorder, told: Mapping[str, str], kind: str, measures: Tuple[Tuple[str, str, int], ...]
) -> None:
    count = _number(told, f"{kind}.count")
    if count is None:
        found.unread(" ".join(name for name, _, _ in measures), _NOT_TOLD)
        return
    seen = set()
    for number in range(min(count, _DEVICES_AT_MOST)):
        label = told.get(f"{kind}.{number}.name", "")[:_LABEL_AT_MOST]
        if not label or label in seen:
            continue
        seen.add(label)
        for name, key, per in measures:
            value = _number(told, f"{kind}.{number}.{key}")
            if value is not None:
                found.add(name, value / per, label)


def _indices(told: Mapping[str, str], kind: str, most: int) -> range:
    """Return the possible numbers of a kind's parts: unplugged virtual CPUs leave gaps below the maximum."""
    return range(min(_number(told, f"{kind}.maximum") or _number(told, f"{kind}.current") or 0, most))


def _add(found: Recorder, name: str, value: Optional[int], per: float = 1) -> None:
    if value is None:
        found.unread(name, _NOT_TOLD)
    else:
        found.add(name, value / per)


def _number(told: Mapping[str, str], key: str) -> Optional[int]:
    text = told.get(key, "")
    return int(text) if _NUMBER.fullmatch(text) else None
