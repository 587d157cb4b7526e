# SPDX-License-Identifier: Apache-2.0
"""Entries that another tool's file cannot express: a reason each, and an error or a remark."""

from collections.abc import Sequence

from vgpuctl.errors import UsageError
from vgpuctl.model.layout import HostLayout, TuningBounds


class Left:
    """Collects what is left out. With partial it is only told, otherwise `settle` refuses."""

    def __init__(self, *, partial: bool) -> None:
        self._partial = partial
        self._reasons: list[str] = []

    @property
    def reasons(self) -> tuple[str, ...]:
        """The omitted entries as sentences, each once and in order."""
        return tuple(dict.fromkeys(self._reasons))

    def out(self, reason: str) -> None:
        """Leave something out."""
        self._reasons.append(reason)

    def out_all(self, reasons: Sequence[str]) -> None:
        """Leave several things out."""
        self._reasons += reasons

    def settle(self, what: str) -> None:
        """Raises UsageError when something was left out and that was not allowed."""
        if self._reasons and not self._partial:
            raise UsageError(
                f"{what} cannot carry all of it", context=self.reasons, hint="--partial leaves these out and goes on"
            )


def host_reasons(layout: HostLayout, tool: str) -> list[str]:
    """Settings of a layout for the whole host, and those of whole cards; none of the files has a place for them."""
    names = ("kernel_arguments", "stop_services", "hugepages", "uplinks", "network", "telemetry", "fabric")
    found = [name for name in names if getattr(layout, name)]
    found += dict.fromkeys(name for entry in layout.gpus for name in entry.tuning.keys)
    found += ["tune"] if any(entry.bounds != TuningBounds() for entry in layout.gpus) else []
    return [f"{name}: {tool} has no place for it" for name in found]
