# SPDX-License-Identifier: Apache-2.0
"""Hyper-V enlightenments, clock and CPU of Windows guests, as far as libvirt and QEMU of the host have them.

Sources: libvirt, formatdomain (table of `hyperv`); QEMU, docs/system/i386/hyperv.rst.
"""

from collections.abc import Collection
from dataclasses import dataclass

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.model.version import version_of

# libvirt reports in its domain capabilities what QEMU and the kernel have.
_REPORTED_SINCE = (9, 0)
_DIRECT_STIMER_SINCE = (5, 7)
# libvirt checks no dependencies before 11.9; QEMU refuses to start then.
_SPINLOCK_RETRIES = 8191
# Not given: evmcs, reenlightenment and emsr_bitmap are for Hyper-V inside the guest, vendor_id hides nothing that a
# vGPU needs hidden, and avic needs a CPU with AVIC or APICv.


@dataclass(frozen=True)
class _Enlightenment:
    """One feature. since: libvirt's version. needs: those without which QEMU refuses it."""

    name: str
    since: tuple[int, int]
    needs: tuple[str, ...] = ()


_TABLE = (
    _Enlightenment("relaxed", (1, 0)),
    _Enlightenment("vapic", (1, 1)),
    _Enlightenment("spinlocks", (1, 1)),
    _Enlightenment("vpindex", (1, 3)),
    _Enlightenment("runtime", (1, 3)),
    _Enlightenment("synic", (1, 3), ("vpindex",)),
    _Enlightenment("stimer", (1, 3), ("vpindex", "synic")),
    _Enlightenment("reset", (1, 3)),
    _Enlightenment("frequencies", (4, 7)),
    _Enlightenment("tlbflush", (4, 7), ("vpindex",)),
    _Enlightenment("ipi", (4, 10), ("vpindex",)),
)


@dataclass(frozen=True)
class EnlightenmentView:
    """One element of the block `hyperv`. retries: of spinlocks. has_direct: of stimer, with its child `direct`."""

    name: str
    retries: int | None = None
    has_direct: bool = False


@dataclass(frozen=True)
class WindowsView:
    """The settings of a Windows guest. has_hyperv_clock: with the timer of Hyper-V.

    hidden_cpu_features: nested virtualisation, with which Windows runs itself as a guest of its own hypervisor.
    """

    hyperv: tuple[EnlightenmentView, ...]
    has_hyperv_clock: bool
    hidden_cpu_features: tuple[str, ...]


def windows_view(facts: HostFacts, reported: Collection[str] | None) -> WindowsView:
    """Decide the settings of a Windows guest on its host.

    reported: the enlightenments of libvirt's domain capabilities, None where they are not known. Emulated guests (TCG)
    have none: QEMU needs the kernel for them, and refuses to start.
    """
    if not facts.kvm:
        return WindowsView((), has_hyperv_clock=False, hidden_cpu_features=())
    version = version_of(facts.libvirt_version)
    asked = [one for one in _TABLE if version >= one.since]
    if reported is not None and version >= _REPORTED_SINCE:
        asked = [one for one in asked if one.name in reported]
    names = _closed(asked)
    views = tuple(
        EnlightenmentView(
            one.name,
            retries=_SPINLOCK_RETRIES if one.name == "spinlocks" else None,
            has_direct=one.name == "stimer" and version >= _DIRECT_STIMER_SINCE,
        )
        for one in asked
        if one.name in names
    )
    return WindowsView(views, has_hyperv_clock=True, hidden_cpu_features=("svm", "vmx"))


def note_missing(facts: HostFacts, reported: Collection[str] | None) -> str | None:
    """Say what a Windows guest does not get on its host, None where it gets all."""
    if not facts.kvm:
        return "Hyper-V enlightenments are left out: the host has no KVM, and QEMU's emulation has none of them"
    given = {one.name for one in windows_view(facts, reported).hyperv}
    missing = [one.name for one in _TABLE if one.name not in given]
    return f"Hyper-V enlightenments that the host does not have are left out: {', '.join(missing)}" if missing else None


def _closed(asked: Collection[_Enlightenment]) -> set[str]:
    """The names of those whose needs are all there."""
    names = {one.name for one in asked}
    while True:
        left = {one.name for one in asked if one.name in names and names.issuperset(one.needs)}
        if left == names:
            return names
        names = left
