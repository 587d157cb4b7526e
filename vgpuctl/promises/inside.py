# SPDX-License-Identifier: Apache-2.0
"""Rows about what is set up in the guest beside its driver, which only the guest can tell."""

from vgpuctl.model.mps import Mps
from vgpuctl.promises.answer import RowAnswer, RowAnswers, not_looked
from vgpuctl.promises.witnessed import InsideGpu, NotLookedAt, Promised, Witnessed

_MPS = "in the guest: `systemctl status vgpuctl-mps`, `journalctl -u vgpuctl-mps`, /var/log/vgpuctl-setup.log"
_EXCLUSIVE = "Exclusive_Process"


def mps(promised: Promised, seen: Witnessed) -> RowAnswers:
    """The defaults of MPS's control daemon: of threads, and of the memory of each GPU."""
    asked, guest = promised.vm.request.guest.mps, seen.guest
    if asked is None:
        return
    memory = "the GPU's memory" if asked.memory_mib is None else f"{asked.memory_mib} MiB"
    wanted = f"{asked.threads}% of the threads and {memory}"
    wanted += f" divided by {asked.clients}" if asked.memory_mib is None else " for each program"
    if isinstance(guest, NotLookedAt):
        yield not_looked("", wanted, f"only the guest can tell: {guest.why}")
        return
    if guest.mps is None:
        yield RowAnswer("", False, wanted, "no control daemon of MPS answers", remedy=_MPS)
        return
    found = guest.mps
    told = ", ".join("not told" if one is None else f"{one} MiB" for one in found.memory_mib) or "not told"
    modes = {gpu.compute_mode for gpu in guest.gpus} - {None, _EXCLUSIVE}
    beside = f"; programs beside MPS are possible: compute mode {', '.join(sorted(map(str, modes)))}" if modes else ""
    words = f"{found.threads:g}% of the threads, {told}, {found.clients} programs{beside}"
    limits = [_limit(asked, gpu) for gpu in guest.gpus]
    if found.threads != asked.threads or any(
        None not in (limit, there) and limit != there for limit, there in zip(limits, found.memory_mib, strict=False)
    ):
        yield RowAnswer("", False, wanted, words, remedy=_MPS)
    elif None in limits or None in found.memory_mib or len(limits) != len(found.memory_mib):
        yield not_looked("", wanted, f"the guest does not tell the limit of each GPU: {words}")
    else:
        yield RowAnswer("", True, wanted, words)


def _limit(asked: Mps, gpu: InsideGpu) -> int | None:
    """The MiB of a device for each program; None where the guest does not show the device's memory."""
    if asked.memory_mib is not None:
        return asked.memory_mib
    return None if gpu.memory_mib is None else gpu.memory_mib // asked.clients
