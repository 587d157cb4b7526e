# SPDX-License-Identifier: Apache-2.0
"""Set what a VF gets of its card by Intel's driver `xe` (reference open-gpus, 6.1). A running VM keeps its VF."""

from typing import Dict

from vgpuctl.agent.facts import pci, sriov, sriov_admin
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.sharing import SetVfParams
from vgpuctl.agent.wire.steps import Change
from vgpuctl.agent.wire.values import replace

_MEANINGS = {
    "EINVAL": "the driver takes no such value",
    "EPERM": "this card's driver does not let it be changed",
    "EACCES": "this card's driver does not let it be changed",
    "EIO": "the card's firmware refused it",
}


def ensure(host: Host, step: SetVfParams, *, dry_run: bool) -> Change:
    """Bring parameters of a VF to the given values, each by one write that is read back.

    Where one is refused, those before it get their old values back.
    Raises Problem: `bad-params`, `not-found`, `no-vf-params` where the driver has no such file, `vgpu-refused` with
    errno, `read-back-differs`.
    """
    address, wanted = step.address, sriov_admin.split(step.params)
    pci.require(host, address)
    physical = sriov.read_physical(host, address)
    numbers = {} if physical is None else {vf: number for number, vf in sriov.read_functions(host, physical)}
    number = numbers.get(address)
    before = {} if physical is None or number is None else sriov_admin.read_values(host, physical, number)
    missing = sorted(wanted.keys() - before.keys())
    if physical is None or number is None or missing:
        raise Problem(
            ProblemCode.NO_VF_PARAMS,
            f"the driver of {physical or address} has no {', '.join(missing)} for the VF {address}",
            path=None if physical is None or number is None else sriov_admin.folder(physical, number),
            errno="ENOENT",
            hint="the driver xe has them since Linux 6.19",
        )
    found = {name: before[name] for name in wanted}
    if found == wanted:
        return Change(step.op, step.target, sriov_admin.write(found), sriov_admin.write(found), changed=False)
    if not dry_run:
        _write(host, sriov_admin.folder(physical, number), found, wanted, what=f"the VF {address}")
        after = sriov_admin.read_values(host, physical, number)
        told = {name: after.get(name, "nothing") for name in wanted}
        if told != wanted:
            said = f"the VF {address} accepted {sriov_admin.write(wanted)} but reads {sriov_admin.write(told)}"
            raise Problem(ProblemCode.READ_BACK_DIFFERS, said, path=sriov_admin.folder(physical, number))
    return Change(step.op, step.target, sriov_admin.write(found), sriov_admin.write(wanted), changed=True)


def _write(host: Host, folder: str, before: Dict[str, str], wanted: Dict[str, str], *, what: str) -> None:
    done = []
    for name, value in wanted.items():
        if before[name] == value:
            continue
        with host.kernel_log() as log:
            try:
                host.write(f"{folder}/{name}", value)
                done.append(name)
            except Problem as problem:
                for other in reversed(done):
                    host.write(f"{folder}/{other}", before[other])
                meaning = _MEANINGS.get(problem.errno or "", problem.message)
                raise replace(
                    problem,
                    code=ProblemCode.VGPU_REFUSED,
                    message=f"setting {name} of {what} to {value} was refused ({problem.errno}): {meaning}",
                    kernel_lines=log.lines(),
                    hint="its old values are back; see dmesg, and `vgpuctl inspect-host` for what its other VFs have",
                ) from problem
