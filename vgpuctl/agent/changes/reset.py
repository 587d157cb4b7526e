# SPDX-License-Identifier: Apache-2.0
"""Reset a function that nobody holds (reference 1.1, 9 row 15; day 2 reference 5.1)."""

import contextlib
from typing import Iterator, List

from vgpuctl.agent.facts import mdev, pci, sriov
from vgpuctl.agent.facts.holders import OpenNodes, require_unheld
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.steps import Change, ResetFunction

# Linux tries the methods in its own order, with `pm` before `bus`, and does not report which one it used. D3hot and
# back resets less than the others, so it comes last; what the kernel has for this very device comes first.
_ORDER = ("device_specific", "acpi", "flr", "af_flr", "cxl_bus", "bus", "pm")

_NOTES = "/run/vgpuctl/reset-methods"
"""The methods of a function whose order we have changed for the time of a reset: a run that is killed in it leaves its
note, and the next reset writes them back. A reboot ends both.
"""


def ensure(host: Host, step: ResetFunction, *, dry_run: bool) -> Change:
    """Reset one function by one method after another until one works; `after` of the change says which.

    Every reset is a change: the device does not tell whether it was reset before. Kernels before 5.15 choose the method
    and do not name it: it is then `reset`.

    Raises Problem: `held`, `vfs-active`, `mdevs-active`, `no-reset` when the kernel knows no way to reset it,
    `reset-refused` when every way failed, `write-blocked`.
    """
    address = step.address
    path = pci.require(host, address)
    noted = host.read_optional(_note(address))
    methods = pci.read_reset_methods(host, address) if noted is None else tuple(noted.split())
    if not methods or not host.exists(f"{path}/reset"):
        raise Problem(
            ProblemCode.NO_RESET,
            f"{address} cannot be reset: the kernel knows no method for it",
            path=f"{path}/reset",
            errno="ENOENT",
            hint="a reset of its bus or a reboot is needed before another tenant gets it",
        )
    nodes = OpenNodes(host)
    holders = nodes.holders_of_function(address) + nodes.users(address)
    require_unheld(nodes, address, holders)
    count = sriov.read_count(host, address)
    if count:
        raise Problem(ProblemCode.VFS_ACTIVE, f"{address} has {count} VFs; a reset would delete them")
    if mdev.read_of(host, (address,)):
        raise Problem(ProblemCode.MDEVS_ACTIVE, f"{address} has mediated devices; a reset would delete them")
    ordered = sorted(methods, key=lambda one: _ORDER.index(one) if one in _ORDER else len(_ORDER))
    is_choice = noted is not None or len(ordered) > 1
    taken = ordered[0]
    if not dry_run:
        with _own_order(host, path, address, " ".join(methods)) if is_choice else contextlib.nullcontext():
            taken = _reset(host, path, address, ordered, is_choice=is_choice)
    return Change(step.op, address, None, taken, changed=True)


def _reset(host: Host, path: str, address: str, methods: List[str], *, is_choice: bool) -> str:
    """Try each method and return the one that worked."""
    refused: List[Problem] = []
    with host.kernel_log() as log:
        for method in methods:
            try:
                if is_choice:
                    host.write(f"{path}/reset_method", method)
                host.write(f"{path}/reset", "1")
            except Problem as problem:
                if problem.code != ProblemCode.WRITE_REFUSED:
                    raise
                refused.append(problem)
                continue
            return method
        raise Problem(
            ProblemCode.RESET_REFUSED,
            f"{address} was not reset by any of {', '.join(methods)}: {refused[-1].message}",
            path=f"{path}/reset",
            errno=refused[-1].errno,
            kernel_lines=log.lines(),
            hint="power-cycle the host before another tenant gets it",
        )


@contextlib.contextmanager
def _own_order(host: Host, path: str, address: str, before: str) -> Iterator[None]:
    """The block may write `reset_method`; the kernel's list is as before afterwards."""
    host.put_file(_note(address), before.encode(), 0o644)
    try:
        yield
    finally:
        _restore_list(host, path, before)
        host.remove_file(_note(address))


def _note(address: str) -> str:
    return f"{_NOTES}/{address}"


def _restore_list(host: Host, path: str, before: str) -> None:
    """Write the methods back as they were read, or let the kernel find them again.

    Linux lists `bus` for a card whose other functions it found later, and does not take the list back: a reset of the
    bus would reset those too.
    """
    try:
        host.write(f"{path}/reset_method", before)
    except Problem as problem:
        if problem.code != ProblemCode.WRITE_REFUSED:
            raise
        host.write(f"{path}/reset_method", "default")
