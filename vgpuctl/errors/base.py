# SPDX-License-Identifier: Apache-2.0
"""The root of the error tree, and the errors that belong to no subject."""

from collections.abc import Sequence
from typing import ClassVar

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
        """The message with the details that it lacks, where nothing else shows the context: in a table, or an event."""
        details = "; ".join(one for one in self.details if one not in self.message)
        return ": ".join(filter(None, (self.said_of(name), details)))

    def line_of(self, name: str) -> str:
        """The message as a line that begins with the name of a host or VM, once."""
        return f"{name}: {self.said_of(name)}"


class UsageError(VgpuctlError):
    """An option or a specification has a value that cannot be used."""

    reference = "usage"
    exit_code = 2


class MissingExtra(UsageError, ModuleNotFoundError):
    """A command needs a library that is not installed; the hint names the extra of vgpuctl that has it."""

    reference = "extra-missing"


class InventoryError(VgpuctlError):
    """The inventory cannot be read, or names no host that fits."""

    reference = "inventory"
    exit_code = 3


class LabError(VgpuctlError):
    """The lab cannot be built, started or stopped."""

    reference = "lab"
    exit_code = 8


class PartialFailure(VgpuctlError):
    """Some hosts or VMs did what was asked and some did not."""

    reference = "partial-failure"
    exit_code = 10


class WaitTimedOut(VgpuctlError):
    """VMs did not meet the condition of `wait` in time; `context` has one line per VM: its state, and the reason."""

    reference = "wait-timed-out"
    exit_code = 13


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
            hint = (
                "this is a fault of vgpuctl itself; run it again with --log-file FILE, and report it with "
                "what `vgpuctl support-bundle --to bundle.tar.gz --log FILE` writes"
            )
        error = cls(f"{where}{message}", hint=hint)
        error.__cause__ = cause
        return error
