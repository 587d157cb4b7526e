# SPDX-License-Identifier: Apache-2.0
"""Every error a user can meet, with its stable reference and exit code (docs/errors.md is made from this file).

VgpuctlError
├── UsageError 2            bad options or a bad specification; ImageUnregistered
├── InventoryError 3        the inventory cannot be read
├── HostError 4             one host did not do what was asked
│   ├── HostUnreachable  HostKeyUnknown  HostKeyChanged  AuthenticationFailed  BecomeFailed
│   ├── PythonMissing  LibvirtMissing  CommandTimedOut  CommandFailed  TooMuchOutput
│   └── AgentBroken  AgentProblem(code)  LayoutRefused  LayoutDiffers  ImageMissing
├── NoCapacity 5            no GPU can take the request; the context has a line per GPU
│   └── PreemptionNeeded    it fits only if other VMs are preempted, and nobody agreed to that; NoLicence
├── StateError 6            the store and the request disagree
│   ├── NotFound  VmDiffers  TenantDiffers  ConcurrentChange  StoreUnusable  StoreNotReconciled
│   ├── StoreOutcomeUnknown  DataLost  PrometheusUnusable  NetworkDiffers  NetworkInUse  AddressesExhausted
│   ├── ImageDiffers  ImageInUse  FileNotWritten (a file of this machine; the disk is full, for example)
├── GuestError 7            libvirt refused a domain, volume or network
│   ├── DomainRejected  VolumeRejected  VolumeExists  NetworkMissing  NetworkRejected  ImageRejected
├── OvnError 11             OVN's databases did not do what was asked; OvnUnreachable  OvnRefused
├── LabError 8  QuotaExceeded 9 (a tenant asked for more than it was promised)
├── Unexpected 70           a fault of vgpuctl itself, or of the machine it runs on
├── Interrupted 130         the user pressed Ctrl-C
└── PartialFailure 10       some hosts did and some did not
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from vgpuctl.agent.wire.problem_codes import ProblemCode
    from vgpuctl.agent.wire.steps import Change

_SHOWN_CHARACTERS = 300
_DETAILS_AT_MOST = 5


class VgpuctlError(Exception):
    """An error for the user: what was tried, what the system answered, what to do next. details: its context, cut."""

    reference: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, context: Sequence[str] = (), hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.context = tuple(context)
        self.details = self.context[:_DETAILS_AT_MOST]
        self.hint = hint

    def said_of(self, name: str) -> str:
        """The message for a line that begins with the name of a host or VM: without that name at its own beginning."""
        return self.message.removeprefix(f"{name}: ")

    def reason_of(self, name: str) -> str:
        """The message with its details, where nothing else shows the context: in a row of a table, or in an event."""
        return ": ".join(filter(None, (self.said_of(name), "; ".join(self.details))))

    def line_of(self, name: str) -> str:
        """The message as a line that begins with the name of a host or VM, once."""
        return f"{name}: {self.said_of(name)}"


class UsageError(VgpuctlError):
    """An option or a specification has a value that cannot be used."""

    reference = "usage"
    exit_code = 2


class InventoryError(VgpuctlError):
    """The inventory cannot be read, or names no host that fits."""

    reference = "inventory"
    exit_code = 3


class HostError(VgpuctlError):
    """A host did not do what was asked of it. host: its name, where the one who asked noted it."""

    reference = "host"
    exit_code = 4
    host: str | None = None


class HostUnreachable(HostError):
    """No connection to the host's SSH port."""

    reference = "host-unreachable"


class HostKeyUnknown(HostError):
    """The host's key is not in known_hosts."""

    reference = "host-key-unknown"


class HostKeyChanged(HostError):
    """The host's key is another than the one in known_hosts."""

    reference = "host-key-changed"


class WrongHost(HostError):
    """Another host of the inventory answers at the host's address."""

    reference = "wrong-host"


class AuthenticationFailed(HostError):
    """The host refused the user or the keys."""

    reference = "authentication-failed"


class BecomeFailed(HostError):
    """sudo refused on the host."""

    reference = "become-failed"


class PythonMissing(HostError):
    """The host has no Python interpreter where the inventory says."""

    reference = "python-missing"


class LibvirtMissing(HostError):
    """The host has no libvirt, or its daemon does not answer."""

    reference = "libvirt-missing"


class CommandTimedOut(HostError):
    """A command on the host did not end within its time."""

    reference = "command-timed-out"


class CommandFailed(HostError):
    """A command on the host ended with an error."""

    reference = "command-failed"


class TooMuchOutput(HostError):
    """A command on the host sent more than vgpuctl reads of it."""

    reference = "too-much-output"


class AgentBroken(HostError):
    """The agent on the host answered something that is not its protocol."""

    reference = "agent-broken"


class AgentProblem(HostError):
    """The agent refused or failed; `code` is its stable problem code, `done` what it had changed until then."""

    reference = "agent-problem"

    def __init__(
        self,
        code: "ProblemCode",
        message: str,
        *,
        context: Sequence[str] = (),
        hint: str | None = None,
        done: "Sequence[Change]" = (),
    ) -> None:
        super().__init__(message, context=context, hint=hint)
        self.code = code
        self.done = list(done)


class LayoutRefused(HostError):
    """The declared layout is not reached: something stands in its way, or VMs would be disturbed."""

    reference = "layout-refused"


class LayoutDiffers(HostError):
    """The steps were taken, and the host read again is not in its declared layout."""

    reference = "layout-differs"


class ImageMissing(HostError):
    """A host has no copy of an image."""

    reference = "image-missing"


class NoCapacity(VgpuctlError):
    """No GPU can take the request; `context` has one line per GPU or host looked at.

    brief: the same in few lines, None where context is short. stays: reading the hosts again cannot change it.
    """

    reference = "no-capacity"
    exit_code = 5

    def __init__(
        self,
        message: str,
        *,
        context: Sequence[str] = (),
        hint: str | None = None,
        brief: Sequence[str] | None = None,
        stays: bool = False,
    ) -> None:
        super().__init__(message, context=context, hint=hint)
        self.brief = None if brief is None else tuple(brief)
        self.stays = stays
        if brief is not None:  # without the advice of an option, which only the terminal shows
            self.details = tuple(one for one in brief if not one.startswith("--"))


class PreemptionNeeded(NoCapacity):
    """The request fits only if other VMs are preempted, and nobody agreed; `context` has one line per VM."""

    reference = "preemption-needed"


class NoLicence(NoCapacity):
    """Every seat of the licences that a VM needs is taken; `context` has one line per seat or pool."""

    reference = "no-licence"


class StateError(VgpuctlError):
    """The store and the request disagree."""

    reference = "state"
    exit_code = 6


class DataLost(StateError):
    """A volume of the VM was on a dead host's own storage."""

    reference = "data-lost"


class NotFound(StateError):
    """The store knows no such tenant, VM or host."""

    reference = "not-found"


class VmDiffers(StateError):
    """A VM of this name exists with another specification."""

    reference = "vm-differs"


class ConcurrentChange(StateError):
    """Another run changed the same thing first."""

    reference = "concurrent-change"


class StoreUnusable(StateError):
    """The store cannot be opened or written."""

    reference = "store-unusable"


class PrometheusUnusable(StateError):
    """A Prometheus server cannot be asked for past readings, or its answer cannot be used."""

    reference = "prometheus-unusable"


class StoreNotReconciled(StoreUnusable):
    """The store was restored from a backup, and is older than the hosts: it takes no change before it is reconciled."""

    reference = "store-not-reconciled"


class StoreOutcomeUnknown(StoreUnusable):
    """The connection to the database was lost during a commit, and whether it was committed could not be found out."""

    reference = "store-outcome-unknown"


class FileNotWritten(StateError):
    """A file on this machine cannot be written: the disk is full or read-only, or the user may not."""

    reference = "file-not-written"


class TenantDiffers(StateError):
    """A tenant of this name exists with other quotas, pools or another preemption policy."""

    reference = "tenant-differs"


class NetworkDiffers(StateError):
    """A network of this name exists with another specification."""

    reference = "network-differs"


class VpcObjectDiffers(StateError):
    """A network object of this name exists with another specification."""

    reference = "vpc-object-differs"


class NetworkInUse(StateError):
    """A network still has VMs, something of it is still used, or its addresses overlap where they may not."""

    reference = "network-in-use"


class AddressesExhausted(StateError):
    """A network has no free address."""

    reference = "addresses-exhausted"


class ImageDiffers(StateError):
    """An image of this name is registered with another place, format or checksum."""

    reference = "image-differs"


class ImageInUse(StateError):
    """VMs or queued VMs name the image."""

    reference = "image-in-use"


class ImageUnregistered(UsageError):
    """A VM names a path, a volume or an image that the catalogue does not have."""

    reference = "image-unregistered"


class GuestError(VgpuctlError):
    """libvirt refused something."""

    reference = "guest"
    exit_code = 7


class DomainRejected(GuestError):
    """libvirt refused to define or start a domain."""

    reference = "domain-rejected"


class VolumeRejected(GuestError):
    """libvirt refused a storage volume, or a base image is missing."""

    reference = "volume-rejected"


class VolumeExists(VolumeRejected):
    """A storage volume of the name exists and is not ours; it stays as it is."""

    reference = "volume-exists"


class NetworkMissing(GuestError):
    """The libvirt network of a VM does not exist or is not active."""

    reference = "network-missing"


class NetworkRejected(GuestError):
    """libvirt refused to define, start or change a tenant's network."""

    reference = "network-rejected"


class ImageRejected(GuestError):
    """A host's copy of an image is not what was registered, or is a VM's disk."""

    reference = "image-rejected"


class OvnError(VgpuctlError):
    """OVN's databases did not do what was asked."""

    reference = "ovn"
    exit_code = 11


class OvnUnreachable(OvnError):
    """OVN's northbound database does not answer."""

    reference = "ovn-unreachable"


class OvnRefused(OvnError):
    """OVN's northbound database did not take a change."""

    reference = "ovn-refused"


class LabError(VgpuctlError):
    """The lab cannot be built, started or stopped."""

    reference = "lab"
    exit_code = 8


class QuotaExceeded(VgpuctlError):
    """A tenant asked for more than its quota; `context` has one line per quota: used, limit, asked."""

    reference = "quota-exceeded"
    exit_code = 9


class PartialFailure(VgpuctlError):
    """Some hosts did what was asked and some did not."""

    reference = "partial-failure"
    exit_code = 10


class Interrupted(VgpuctlError):
    """The user interrupted the run; its changes were rolled back, or `vgpuctl repair` does it."""

    reference = "interrupted"
    exit_code = 130


class Unexpected(VgpuctlError):
    """An error that nobody foresaw: a fault of vgpuctl, or of the machine it runs on (memory, disk)."""

    reference = "unexpected"
    exit_code = 70

    @classmethod
    def of(cls, cause: BaseException, *, where: str = "") -> "Unexpected":
        """Describe an exception in one line. where: the host or file it concerns, as `gpu1: `."""
        said = " ".join(str(cause).split())[:_SHOWN_CHARACTERS]
        if isinstance(cause, MemoryError):
            message, hint = "the memory of this machine does not suffice", "end other programs, or read less at once"
        elif isinstance(cause, OSError) and cause.strerror:
            place = f" at {cause.filename}" if cause.filename is not None else ""
            message, hint = f"this machine answered `{cause.strerror}`{place}", None
        else:
            message = f"unexpected {type(cause).__name__}" + (f": {said}" if said else "")
            hint = "this is a fault of vgpuctl itself; report it with the traceback, which -vv or --log-file FILE gives"
        error = cls(f"{where}{message}", hint=hint)
        error.__cause__ = cause
        return error
