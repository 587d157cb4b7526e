# SPDX-License-Identifier: Apache-2.0
"""Set what a VF gets of its card by Intel's driver `xe` (reference open-gpus, 6.1). A running VM keeps its VF."""

from contextlib import suppress
from typing import Dict

from vgpuctl.agent.facts import pci, sriov, sriov_admin
from vgpuctl.agent.facts.sriov_admin import DIFFERS, note_first
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.sharing import SetVfParams
from vgpuctl.agent.wire.steps import Change
from vgpuctl.agent.wire.values import replace

MEANINGS = {
    "EINVAL": "the driver takes no such value",
    "EPERM": "the driver does not let it be changed on this card",
    "EACCES": "the driver does not let it be changed on this card",
    "EOPNOTSUPP": "the driver does not let it be changed on this card",
    "EIO": "the card's firmware refused it",
}
HINT = "see dmesg; `vgpuctl inspect-host` shows what its VFs have"


def ensure(host: Host, step: SetVfParams, *, dry_run: bool) -> Change:
    """Have exactly these parameters of a VF set. One that is no longer named gets the driver's first value back.

    The first value is noted on the host before it is changed. Where a write is refused, or the driver takes another
    value, as it does above its maximum, all are as before.
    Raises Problem: `bad-params`, `not-found`, `no-vf-params` where the driver has no such file, `vgpu-refused` with
    errno, `read-back-differs`, `unexpected-value` for a note that cannot be read, or tiles with different values.
    """
    address, wanted = step.address, sriov_admin.split(step.params)
    pci.require(host, address)
    first = sriov_admin.read_first(host).get(address, {})
    if not wanted and not first:
        return Change(step.op, step.target, None, None, changed=False)
    folder, found = _read(host, address, {**first, **wanted})
    before, after = {name: found[name] for name in {**first, **wanted}}, {**first, **wanted}
    is_changed = before != after or wanted.keys() != first.keys()
    if is_changed and not dry_run:
        kept = {name: first.get(name, found[name]) for name in after}
        note_first(host, address, kept)
        try:
            _write(host, address, folder, before, after)
        except Problem:
            with suppress(Problem):
                _write(host, address, folder, _now(host, folder, after), before)
                note_first(host, address, first)
            raise
        note_first(host, address, {name: kept[name] for name in wanted})
    return Change(step.op, step.target, sriov_admin.write(before), sriov_admin.write(after), changed=is_changed)


def _read(host: Host, address: str, names: Dict[str, str]) -> "tuple[str, Dict[str, str]]":
    """Return the folder of a VF's parameters, and what is there."""
    physical = sriov.read_physical(host, address)
    numbers = {} if physical is None else {vf: number for number, vf in sriov.read_functions(host, physical)}
    if physical is None or address not in numbers:
        raise Problem(ProblemCode.NO_VF_PARAMS, f"{address} is no VF, so its driver has no {', '.join(sorted(names))}")
    found = sriov_admin.read_values(host, physical, numbers[address])
    folder = sriov_admin.folder(physical, numbers[address])
    missing = sorted(names.keys() - found.keys())
    if missing:
        raise Problem(
            ProblemCode.NO_VF_PARAMS,
            f"the driver of {physical} has no {', '.join(missing)} for the VF {address}",
            path=folder,
            errno="ENOENT",
            hint="the driver xe has them since Linux 6.19",
        )
    unequal = sorted(name for name in names if found[name] == DIFFERS)
    if unequal:
        raise Problem(
            ProblemCode.UNEXPECTED_VALUE,
            f"the tiles of {physical} have different values of {', '.join(unequal)} for the VF {address}",
            path=folder,
            hint=f"write one value to {folder}/{unequal[0]} first",
        )
    return folder, found


def _now(host: Host, folder: str, names: Dict[str, str]) -> Dict[str, str]:
    return {name: (host.read_optional(f"{folder}/{name}") or "").strip() for name in names}


def _write(host: Host, address: str, folder: str, before: Dict[str, str], wanted: Dict[str, str]) -> None:
    """Write those that differ, and read all back."""
    for name, value in wanted.items():
        if before[name] == value:
            continue
        write_param(host, f"{folder}/{name}", value, f"setting {name} of the VF {address} to {value}")
    now = _now(host, folder, wanted)
    if now != wanted:
        said = f"the VF {address} was told {sriov_admin.write(wanted)} and reads {sriov_admin.write(now)}"
        raise Problem(ProblemCode.READ_BACK_DIFFERS, said, path=folder, hint=f"the driver limits values; {HINT}")


def write_param(host: Host, path: str, value: str, what: str) -> None:
    """Write one parameter of a function. Raises Problem `vgpu-refused` with errno and the kernel's lines."""
    with host.kernel_log() as log:
        try:
            host.write(path, value)
        except Problem as problem:
            meaning = MEANINGS.get(problem.errno or "", problem.message)
            raise replace(
                problem,
                code=ProblemCode.VGPU_REFUSED,
                message=f"{what} was refused ({problem.errno}): {meaning}",
                kernel_lines=log.lines(),
                hint=HINT,
            ) from problem
