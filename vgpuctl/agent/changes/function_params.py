# SPDX-License-Identifier: Apache-2.0
"""Set the parameters of a layout for the functions of Intel's driver `xe` (reference open-gpus, 6.1)."""

from contextlib import suppress
from typing import Dict

from vgpuctl.agent.changes.sriov_admin import HINT, write_param
from vgpuctl.agent.facts import pci, sriov, sriov_admin
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.sharing import SetFunctionParams, StopFunction
from vgpuctl.agent.wire.steps import Change

_READ_ONLY = ("EACCES", "EPERM")


def ensure(host: Host, step: SetFunctionParams, *, dry_run: bool) -> Change:
    """Have these parameters of a function. A parameter that a VM has set keeps its value until the VM gives it up.

    Where a write is refused, or the driver takes another value, all are as before.
    Raises Problem: `bad-params`, `not-found` for a VF that is not there, `no-vf-params` where the driver has no such
    file, `vgpu-refused` with errno, `read-back-differs`.
    """
    wanted = sriov_admin.split(step.params, sriov_admin.OF_FUNCTION)
    pci.require(host, step.address)
    vf = _address(host, step)
    found = sriov_admin.read_values(host, step.address, step.vf)
    missing = sorted(wanted.keys() - found.keys())
    if missing:
        raise Problem(
            ProblemCode.NO_VF_PARAMS,
            f"the driver of {step.address} has no {', '.join(missing)} for {step.target}",
            path=sriov_admin.folder(step.address, step.vf),
            errno="ENOENT",
            hint="the driver xe has them since Linux 6.19, vram_quota of VFs of discrete cards since 7.0",
        )
    noted = sriov_admin.read_first(host).get(vf, {})
    before = {name: noted.get(name, found[name]) for name in wanted}
    if before != wanted and not dry_run:
        at_once = {name: value for name, value in wanted.items() if name not in noted}
        try:
            _write(host, step, found, at_once)
        except Problem:
            with suppress(Problem):
                now = sriov_admin.read_values(host, step.address, step.vf)
                _write(host, step, now, {name: found[name] for name in at_once})
            raise
        if noted:
            sriov_admin.note_first(host, vf, {name: wanted.get(name, value) for name, value in noted.items()})
    return Change(step.op, step.target, sriov_admin.write(before), sriov_admin.write(wanted), changed=before != wanted)


def stop(host: Host, step: StopFunction, *, dry_run: bool) -> Change:
    """Stop the work of a VF. Nothing tells whether it is stopped already, so each time is a change.

    Raises Problem: `not-found`, `no-vf-params` for what is no VF and where the driver has no such file, `vgpu-refused`.
    """
    pci.require(host, step.address)
    physical = sriov.read_physical(host, step.address)
    numbers = {} if physical is None else {vf: number for number, vf in sriov.read_functions(host, physical)}
    number = numbers.get(step.address)
    path = "" if physical is None or number is None else sriov_admin.stop_file(physical, number)
    if not path or not host.exists(path):
        raise Problem(
            ProblemCode.NO_VF_PARAMS,
            f"nothing stops the work of {step.address}: its driver has no file `stop` for it",
            path=path or pci.folder(step.address),
            errno="ENOENT",
            hint="the driver xe has one for its VFs since Linux 6.19",
        )
    if not dry_run:
        write_param(host, path, "1", f"stopping the work of {step.address}")
    return Change(step.op, step.target, None, "stopped", changed=True)


def _address(host: Host, step: SetFunctionParams) -> str:
    """The function's own address."""
    if step.vf is None:
        return step.address
    address = dict(sriov.read_functions(host, step.address)).get(step.vf)
    if address is None:
        raise Problem(ProblemCode.NOT_FOUND, f"{step.address} has no VF {step.vf}", hint="enable its VFs first")
    return address


def _write(host: Host, step: SetFunctionParams, before: Dict[str, str], wanted: Dict[str, str]) -> None:
    """Write those that differ, and read all back."""
    for name, value in wanted.items():
        if before[name] != value:
            _write_one(host, step, name, value)
    now = sriov_admin.read_values(host, step.address, step.vf)
    differing = {name: now.get(name, "nothing") for name, value in wanted.items() if now.get(name) != value}
    if differing:
        asked = sriov_admin.write({name: wanted[name] for name in differing})
        raise Problem(
            ProblemCode.READ_BACK_DIFFERS,
            f"{step.target} was told {asked} and reads {sriov_admin.write(differing)}",
            path=sriov_admin.folder(step.address, step.vf),
            hint=f"the driver limits and rounds values: declare what it reads; {HINT}",
        )


def _write_one(host: Host, step: SetFunctionParams, name: str, value: str) -> None:
    """Write one. Where the driver has a VF's priority read-only, it can be set of all VFs at once."""
    path = f"{sriov_admin.folder(step.address, step.vf)}/{name}"
    for_all = sriov_admin.of_all(step.address, name)
    what = f"setting {name} of {step.target} to {value}"
    try:
        write_param(host, path, value, what)
    except Problem as problem:
        is_for_all = step.vf is not None and name == sriov_admin.PRIORITY and host.exists(for_all)
        if problem.errno not in _READ_ONLY or not is_for_all:
            raise
        write_param(host, for_all, value, what)
