# SPDX-License-Identifier: Apache-2.0
"""Errors of a request that does not fit: no GPU, no licence, or more than the tenant's quota."""

from collections.abc import Sequence

from vgpuctl.errors.base import VgpuctlError


class NoCapacity(VgpuctlError):
    """No GPU can take the request; `context` has one line per GPU or host looked at.

    brief: the same in few lines, None where context is short. short: the refusals that matter to one who waits.
    stays: reading the hosts again cannot change it. codes: of the refusals, where there are any.
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
        short: str = "",
        stays: bool = False,
        codes: Sequence[str] = (),
    ) -> None:
        super().__init__(message, context=context, hint=hint)
        self.brief = None if brief is None else tuple(brief)
        self.short = short
        self.stays = stays
        self.codes = tuple(codes)
        if brief is not None:  # without the advice of an option, which only the terminal shows
            self.details = tuple(one for one in brief if not one.startswith("--"))

    @property
    def reason_to_wait(self) -> str:
        """The message, and what it waits for."""
        return f"{self.message}; {self.short}" if self.short else self.message


class PreemptionNeeded(NoCapacity):
    """The request fits only if other VMs are preempted, and nobody agreed; `context` has one line per VM."""

    reference = "preemption-needed"


class NoLicence(NoCapacity):
    """Every seat of the licences that a VM needs is taken; `context` has one line per seat or pool."""

    reference = "no-licence"


class QuotaExceeded(VgpuctlError):
    """A tenant asked for more than its quota; `context` has one line per quota: used, limit, asked.

    short: the message without the VM and the resources, for a VM that waits.
    """

    reference = "quota-exceeded"
    exit_code = 9

    def __init__(
        self, message: str, *, context: Sequence[str] = (), hint: str | None = None, short: str | None = None
    ) -> None:
        super().__init__(message, context=context, hint=hint)
        self.short = message if short is None else short

    @property
    def reason_to_wait(self) -> str:
        """The amounts and what to do, for one that waits and is not told of this error: each resource is named once."""
        return "; ".join(filter(None, (f"{self.short}: {'; '.join(self.context)}", self.hint)))
