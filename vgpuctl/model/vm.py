# SPDX-License-Identifier: Apache-2.0
"""A tenant's VM as it was asked for, and as the store knows it."""

import re
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum

from vgpuctl.errors import UsageError
from vgpuctl.model.constraints import NO_CONSTRAINTS, Constraints
from vgpuctl.model.disk import DataDisk, DiskRequest, InstallRequest
from vgpuctl.model.display import DisplayRequest
from vgpuctl.model.gpu_request import GpuRequest
from vgpuctl.model.guest_driver import GuestDriver
from vgpuctl.model.guest_memory import GuestMemory
from vgpuctl.model.labels import Labels
from vgpuctl.model.licence import Edition
from vgpuctl.model.mps import GuestRequest
from vgpuctl.model.nic import NicModel, NicRequest
from vgpuctl.model.numa import GuestNuma
from vgpuctl.model.printable import printable
from vgpuctl.model.secret_text import UNKNOWN_DIGEST, SecretText
from vgpuctl.model.switch import Switch
from vgpuctl.model.vgpu_params import VgpuParams

_VM_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_WORKLOAD = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


class Firmware(StrEnum):
    """The firmware of the guest."""

    BIOS = "bios"
    UEFI = "uefi"


class Hold(StrEnum):
    """The fate of the VM's GPU shares when it is stopped."""

    KEEP = "keep"
    RELEASE = "release"


class Preemption(StrEnum):
    """The fate of a preempted VM."""

    STOP = "stop"
    REQUEUE = "requeue"
    SUSPEND = "suspend"


class RestartPolicy(StrEnum):
    """When the controller starts a VM again that has ended by itself; a VM that was stopped by command stays stopped.

    on-failure: after a crash, a start that failed or the end of its host. always: after the guest has powered off too.
    """

    NEVER = "never"
    ON_FAILURE = "on-failure"
    ALWAYS = "always"


class VmState(StrEnum):
    """The state of a VM in the store; `running` was read back from libvirt."""

    CREATING = "creating"
    RUNNING = "running"
    STOPPED = "stopped"
    DELETING = "deleting"
    BROKEN = "broken"


@dataclass(frozen=True)
class CloudInit:
    """The cloud-init seed. user_data and network_config are whole documents as the user wrote them.

    licence_token: the content of NVIDIA's client configuration token, in base64.
    """

    ssh_authorized_keys: tuple[str, ...] = ()
    user_data: SecretText | None = None
    network_config: SecretText | None = None
    hostname: str | None = None
    licence_token: SecretText | None = None

    def with_known_digests(self, other: "CloudInit") -> "CloudInit":
        """This seed with the digests of `other` where an older vgpuctl noted none."""
        token = self.licence_token
        if token is None or token.digest != UNKNOWN_DIGEST or other.licence_token is None:
            return self
        return replace(self, licence_token=other.licence_token)

    def is_kept(self) -> bool:
        """True if the store has all documents of the seed, so that it can be made again. It keeps no secret ones."""
        return not any((self.user_data, self.network_config, self.licence_token))

    def is_wanted(self) -> bool:
        """True if there is anything to seed."""
        return any((self.ssh_authorized_keys, self.user_data, self.network_config, self.hostname, self.licence_token))


@dataclass(frozen=True)
class DirectKernel:
    """Boot a kernel and initrd without a boot loader: names of the catalogue, in a domain paths on its host."""

    kernel: str
    initrd: str | None = None
    command_line: str = ""


@dataclass(frozen=True)
class VmRequest:
    """One VM as asked for; the same request again means: no change.

    network: a network of the tenant, else of the host's libvirt; None for none. host: the inventory name it must run
    on, None for any. priority: 0 to 1000, the higher the more important. preemptible: whether a more important VM may
    take its shares, and what becomes of it then; None for never. security_groups: of the tenant, for its port in an OVN
    network. bandwidth_mbps: the most its port may send, and receive; None for no limit.
    restart: when the controller starts it again; with `autostart` or any policy but `never` it also does so after the
    host was booted.
    constraints: where it is placed; a VM that is there is not moved for them.
    workload: class of its work, as the model of throughput knows it; None for an unlabelled one.
    guest_metrics: address and port of the guest's dcgm-exporter that the tenant lets Prometheus scrape; None for none.
    duration_s: how long it is needed, None for an open end. domain: the libvirt domain that was adopted; None for one
    that vgpuctl defines, and whose name follows. hugepages_kib: size of the huge pages that its memory is made of.
    labels: its owner's, by which commands select it. max_downtime_s: the longest that a live move may halt it; None
    for no limit. cpu_limit: percent of one CPU that each vCPU may use at most. cpu_weight: against other VMs, where the
    host's CPUs are short; None for the host's usual one.
    """

    name: str
    tenant: str
    gpus: tuple[GpuRequest, ...] = ()
    vcpus: int = 2
    memory_mib: int = 2048
    disk: DiskRequest | None = None
    network: str | None = "default"
    firmware: Firmware | None = None
    cloud_init: CloudInit = field(default_factory=CloudInit)
    direct_kernel: DirectKernel | None = None
    host: str | None = None
    autostart: bool = False
    restart: RestartPolicy = RestartPolicy.NEVER
    priority: int = 500
    preemptible: Preemption | None = None
    constraints: Constraints = NO_CONSTRAINTS
    security_groups: tuple[str, ...] = ()
    bandwidth_mbps: int | None = None
    duration_s: float | None = None
    domain: str | None = None
    hugepages_kib: int | None = None
    workload: str | None = None
    guest_metrics: str | None = None
    os: str | None = None
    secure_boot: Switch | None = None
    tpm: Switch | None = None
    data_disks: tuple[DataDisk, ...] = ()
    install: InstallRequest | None = None
    nic_model: NicModel | None = None
    nics: tuple[NicRequest, ...] = ()
    display: DisplayRequest = field(default_factory=DisplayRequest)
    vgpu_params: VgpuParams = ()
    guest_driver: GuestDriver = field(default_factory=GuestDriver)
    guest: GuestRequest = field(default_factory=GuestRequest)
    licence: Edition | None = None
    licence_pool: str | None = None
    spare_ports: int | None = None
    labels: Labels = ()
    max_downtime_s: float | None = None
    cpu_limit: int | None = None
    cpu_weight: int | None = None

    @property
    def has_seed(self) -> bool:
        """True if the VM has a seed: for cloud-init or cloudbase-init, or with the answers for an installer."""
        is_unattended = self.install is not None and self.install.unattended
        return self.cloud_init.is_wanted() or self.guest_driver.is_wanted() or is_unattended

    @property
    def memory(self) -> GuestMemory:
        """The host memory that its running guest takes."""
        return GuestMemory(self.memory_mib, self.hugepages_kib)

    @property
    def needs_chassis(self) -> bool:
        """True if it can only run on a working OVN chassis, as is known of an OvnVmRequest alone."""
        return False


@dataclass(frozen=True)
class OvnVmRequest(VmRequest):
    """The request of a VM with an interface in a network that OVN carries, as the scheduler is asked.

    A request has the names of its networks, the store knows who carries them (usecases/network/ports.py). This class
    has no field of its own, so the answer is neither stored nor shown as something that a user asked for.
    """

    @property
    def needs_chassis(self) -> bool:
        """True: it can only run on a working OVN chassis."""
        return True

    @classmethod
    def of(cls, request: VmRequest) -> "OvnVmRequest":
        """Return the same request, of this class."""
        return cls(**{one.name: getattr(request, one.name) for one in fields(request)})


class HostOfNetwork(str):
    """The host of a request that nobody named: the one that a libvirt network of the VM is on.

    As with OvnVmRequest, the store knows it and the request does not; it prints as the host's name. network: for
    people, `acme/front`.
    """

    network: str

    @classmethod
    def of(cls, host: str, network: str) -> "HostOfNetwork":
        """Return the name of the host, of this class."""
        bound = cls(host)
        bound.network = network
        return bound

    @property
    def why(self) -> str:
        """The reason why the VM can be on no other host."""
        return f"network {self.network} is on {self} alone"


@dataclass(frozen=True)
class PreemptionNotice:
    """The end of a VM's grace period (seconds since the epoch, UTC), and the VMs that preempt it: `acme/web-1`.

    is_final: the last check has passed. The VM is stopped then, also when the run that decided it dies.
    """

    at: float
    cause: str
    is_final: bool = False


@dataclass(frozen=True)
class Vm:
    """A VM of the store. uuid: the libvirt domain's, given once and kept.

    domain: the domain's name where the store records another than today's rule gives.
    ends_at: when its declared time is over (seconds since the epoch, UTC); while it is stopped, until when its shares
    are kept. None for an open end. gang: id shared by VMs that were created together with --gang; they are preempted
    together. notice: set from the start of the grace period until the VM is stopped. numa: its part of the host's
    NUMA nodes, None on a host with one node and where an older vgpuctl did not record it. guest_driver: the version of
    NVIDIA's driver that its host last read from the guest; None where it never did.
    """

    uuid: str
    request: VmRequest
    host: str
    state: VmState
    problem: str | None = None
    ends_at: float | None = None
    gang: str | None = None
    notice: PreemptionNotice | None = None
    domain: str | None = None
    numa: GuestNuma | None = None
    guest_driver: str | None = None

    @property
    def as_known(self) -> VmRequest:
        """The request with the driver that the guest was seen with, which may be another than the declared one."""
        request = self.request
        if self.guest_driver is None:
            return request
        return replace(request, guest_driver=replace(request.guest_driver, version=self.guest_driver))

    @property
    def domain_name(self) -> str:
        """The libvirt domain's name: tenants may use the same VM name, libvirt may not."""
        return self.request.domain or self.domain or host_name_of(self.request.tenant, self.request.name)

    @property
    def printed_name(self) -> str:
        """The VM's name for people, in messages, events and JSON: `TENANT/NAME`, whatever its domain is called."""
        return printed_name(self.request.tenant, self.request.name)

    @property
    def is_on_its_way(self) -> bool:
        """True if a move, resize or restart has stopped it and not started it yet: it works, or was cut short."""
        return self.state is VmState.STOPPED and self.is_to_come_back

    @property
    def is_to_come_back(self) -> bool:
        """True if a move, resize or restart stops it, or has stopped it, and starts it again."""
        return comes_back(self.problem)

    def left(self, host: str) -> bool:
        """True if it is on its way from this host, and on another one already."""
        return self.is_on_its_way and self.host != host and self.problem == on_its_way(host, self.host)

    @property
    def has_come(self) -> bool:
        """True if it is on the new host of a move that has not ended."""
        return any(self.left(one) or self.problem in (has_moved(one), came_live_from(one)) for one in self.former_hosts)

    @property
    def unfinished(self) -> str | None:
        """What has not ended of the VM, in words: its creation, deletion, move, resize or restart. None for nothing."""
        if self.state not in (VmState.RUNNING, VmState.STOPPED):
            return f"it is {self.state}"
        if self.live_target is not None:
            return f"its live move to {self.live_target} has not ended"
        is_amid = self.is_on_its_way or self.former_hosts
        return f"its last move, resize or restart has not ended: it {self.problem}" if is_amid else None

    @property
    def former_hosts(self) -> tuple[str, ...]:
        """The other host of a move that has not ended: it may have copies of the VM's volumes, variables and TPM."""
        match = _HOSTS_OF_A_MOVE.fullmatch(self.problem or "")
        return () if match is None else tuple(one for one in match.groups() if one not in (None, self.host))

    @property
    def is_suspended(self) -> bool:
        """True if its host has its memory on disk, with which it goes on when it starts."""
        return self.state is VmState.STOPPED and (self.problem or "").startswith(SUSPENDED)

    @property
    def must_restart(self) -> bool:
        """True for a VM whose problem is that a vGPU of it was reset while its guest ran."""
        return self.state is VmState.RUNNING and self.lost_state is not None

    @property
    def lost_state(self) -> str | None:
        """The problem of a VM that has a vGPU which was reset, in its running guest or in its saved state."""
        return self.problem if MUST_RESTART in (self.problem or "") else None

    @property
    def live_target(self) -> str | None:
        """The host to which it moves without a stop; None for a VM that does not."""
        match = _LIVE_TARGET.fullmatch(self.problem or "") if self.state is VmState.RUNNING else None
        return None if match is None else match[1]

    @property
    def has_to_run(self) -> bool:
        """True if it runs, or is on its way."""
        return self.state is VmState.RUNNING or self.is_on_its_way

    @property
    def is_adopted(self) -> bool:
        """True if somebody else defined its domain, whose definition vgpuctl never writes."""
        return self.request.domain is not None


def parse_workload(text: str, /, *, what: str = "workload") -> str:
    """Read the name of a workload class. Raises UsageError."""
    if _WORKLOAD.fullmatch(text) is None:
        raise UsageError(
            f"{what}: {text[:80]!a} is no workload class", hint="use 1 to 40 small letters, digits and '-': training"
        )
    return text


_ON_ITS_WAY = "moves from "
_IS_RESIZED = "is resized on "
RESTARTING = "is being restarted"
"""The problem of a VM that a restart stops."""
SUSPENDED = "is suspended to disk"
"""The problem of a stopped VM whose memory, and state of its vGPUs, its host has on its disk; or its beginning."""


_HOSTS_OF_A_MOVE = re.compile(
    r"moves from (\S+) to (\S+)|moves to (\S+)|has moved from (\S+)|moves live to (\S+)|came live from (\S+)"
)
_LIVE_TARGET = re.compile(r"moves live to (\S+)")


def moves_to(target: str) -> str:
    """The problem of a stopped VM that moves, until it has changed its host."""
    return f"moves to {target}"


def has_moved(source: str) -> str:
    """The problem of a stopped VM that has changed its host, until its old host has nothing of it."""
    return f"has moved from {source}"


def moves_live_to(target: str) -> str:
    """The problem of a running VM that moves without a stop, until it has changed its host."""
    return f"moves live to {target}"


MUST_RESTART = "must be restarted"
"""In the problem of a running VM whose guest has a vGPU that was reset."""


def came_live_from(source: str) -> str:
    """The problem of a running VM that has moved, until it is verified and its old host has nothing of it."""
    return f"came live from {source}"


def on_its_way(source: str, target: str) -> str:
    """The problem of a VM that ran and is stopped while it moves."""
    return f"{_ON_ITS_WAY}{source} to {target}"


def in_resize(host: str) -> str:
    """The problem of a VM that ran and is stopped while it is resized."""
    return f"{_IS_RESIZED}{host}"


def comes_back(problem: str | None) -> bool:
    """True if the problem of a VM is that a move, resize or restart stops it, which starts it again."""
    return (problem or "").startswith((_ON_ITS_WAY, _IS_RESIZED, RESTARTING))


def host_name_of(tenant: str, name: str) -> str:
    """Name a tenant's VM or network on hosts: `TENANT.NAME`, with the dots of the tenant's name doubled.

    Names begin and end with a letter or digit, so the first single dot ends the tenant's name: no two objects share
    a name (`a.b` with `c` is `a..b.c`, `a` with `b.c` is `a.b.c`).
    """
    return f"{tenant.replace('.', '..')}.{name}"


def printed_name(tenant: str, name: str) -> str:
    """Name an object of a tenant for people, in messages, events and JSON: `TENANT/NAME`, as commands take it."""
    return f"{tenant}/{name}"


def named_network(text: str | None) -> str | None:
    """The network that a flag or a file names; None for `none` and for an empty value."""
    return None if text in (None, "none") else text


def is_name(text: str) -> bool:
    """True for a name as `check_name` accepts it, which a hint may give to a command."""
    return _VM_NAME.fullmatch(text) is not None


def check_name(value: str, *, what: str) -> str:
    """Accept a name of 1 to 63 characters of `A-Za-z0-9._-` that starts and ends with a letter or digit.

    Raises UsageError; the value is shown shortened and escaped.
    """
    if not is_name(value):
        shown = f"'{printable(value if len(value) <= 40 else value[:40] + '...')}'"
        raise UsageError(
            f"{what} {shown} ({len(value)} characters) cannot be used",
            hint="1 to 63 letters, digits, '.', '-' or '_', the first and last a letter or digit",
        )
    return value
