# SPDX-License-Identifier: Apache-2.0
"""VFs of NVIDIA's cards through sriov-manage, and the repair of what it leaves behind (reference 3.1).

The script's exit status proves nothing, and a failure in its middle leaves the PF unbound or on pci-pf-stub, and VFs
without a driver, on pci-pf-stub, or without types. All of that has one repair: the PF back to its driver, and a cycle
of all VFs. A single VF is never bound by hand: vfio's core device is registered by the driver's own way alone.
"""

from typing import List

from vgpuctl.agent.changes import unbind_lock
from vgpuctl.agent.facts import pci, sriov, sriov_health
from vgpuctl.agent.facts.sriov_health import SRIOV_MANAGE, CardHealth
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.vf_health import DRIVER, PF_STUB, VfState

_TIMEOUT_S = 120.0
_ROUNDS = 3
_LOCK_TRIES = 5
_PAUSE_S = 1.0
# Longest wait: for VFs that become healthy; without any progress; and for the PF after the script's end.
_LIFE_TRIES, _STALLED_TRIES, _SETTLE_TRIES = 30, 5, 5
_NO_LOCK = "Cannot obtain unbindLock"
_HINT = (
    "see the kernel's lines and `journalctl -u nvidia-vgpu-mgr`; no other unit may run sriov-manage at the same time "
    "(`vgpuctl check-hosts` names them)"
)


def bring(host: Host, address: str, count: int) -> bool:
    """Bring a card to `count` healthy VFs, 0 or all. Nobody may use the card. Return False if waiting was enough.

    Raises Problem: `unbind-lock`, `sriov-failed` after three rounds, `board-unknown`, `wrong-driver`, `driver-missing`,
    `driver-did-not-bind`, `write-refused`, `program-missing`, `program-timed-out`.
    """
    if sriov_health.read(host, address).driver == DRIVER and _come_to_life(host, address, count).is_as(count):
        return False
    for number in range(_ROUNDS):
        try:
            _take_round(host, address, count)
            return True
        except Problem as problem:
            if problem.code != ProblemCode.SRIOV_FAILED:
                raise
            if number == _ROUNDS - 1:
                _try_to_bind(host, address)
                raise
    raise AssertionError("the last round returns or raises")


def _take_round(host: Host, address: str, count: int) -> None:
    bind_to_nvidia(host, address)
    if sriov.read_count(host, address):
        _run(host, address, "-d", 0)
    if count:
        _run(host, address, "-e", count)


def _run(host: Host, address: str, option: str, count: int) -> None:
    """Run the script under the card's lock: it unbinds every VF before it asks for the lock itself."""
    program = SRIOV_MANAGE if host.find_program(SRIOV_MANAGE) else "sriov-manage"
    said: List[str] = []
    with host.kernel_log() as log:
        for attempt in range(_LOCK_TRIES):
            if attempt:
                host.wait(_PAUSE_S)
            with unbind_lock.held(host, address):
                done = host.run([program, option, address], timeout_s=_TIMEOUT_S, changes=True)
            said = (done.output + done.errors).split("\n")
            if not any(_NO_LOCK in line for line in said):
                break
        else:
            raise unbind_lock.refused(host, address, log.lines())
        found = _settle(host, address, count)
        if found.is_as(count):
            return
        if not any(line.strip() for line in said) and done.status == 0:
            raise _unknown_board(host, address)
        text = "; ".join(line.strip() for line in said if line.strip()) or "nothing"
        raise Problem(
            ProblemCode.SRIOV_FAILED,
            f"sriov-manage {option} left {address} with {found.describe()}, wanted {count} VFs on {DRIVER}; "
            f"it ended with {done.status} and said: {text}",
            path=program,
            kernel_lines=log.lines(),
            hint=_HINT,
        )


def _settle(host: Host, address: str, count: int) -> CardHealth:
    """Wait while the driver's work goes on after the script's end."""
    for attempt in range(_SETTLE_TRIES):
        if attempt:
            host.wait(_PAUSE_S)
        found = sriov_health.read(host, address)
        if found.driver == DRIVER and found.count == count:
            return _come_to_life(host, address, count)
    return found


def _come_to_life(host: Host, address: str, count: int) -> CardHealth:
    """Wait while VFs that are all there become healthy: 30 s for their registration, else while more of them do."""
    found = sriov_health.read(host, address)
    stalled = 0
    for _ in range(_LIFE_TRIES):
        if found.count != count or found.driver != DRIVER or found.is_as(count):
            break
        if stalled >= _STALLED_TRIES and VfState.UNREGISTERED not in found.sick:
            break
        host.wait(_PAUSE_S)
        before, found = found, sriov_health.read(host, address)
        stalled = stalled + 1 if found == before else 0
    return found


def bind_to_nvidia(host: Host, address: str) -> None:
    """Bind a PF to nvidia that an interrupted sriov-manage left unbound or on the stub driver.

    Raises Problem: `wrong-driver`, `driver-missing`, `driver-did-not-bind`, `write-refused`.
    """
    driver = pci.read_driver(host, address)
    path = pci.folder(address)
    if driver == DRIVER:
        return
    if driver not in (PF_STUB, None):
        raise Problem(
            ProblemCode.WRONG_DRIVER,
            f"{address} is on {driver}; sriov-manage needs it on {DRIVER}",
            path=f"{path}/driver",
            hint="give the card back to its driver first (apply-hosts, or delete the VM that has the whole card)",
        )
    if not host.exists(f"{pci.DRIVERS}/{DRIVER}/bind"):
        raise Problem(
            ProblemCode.DRIVER_MISSING,
            f"{address} has no driver, and the kernel has no PCI driver {DRIVER}",
            path=f"{pci.DRIVERS}/{DRIVER}",
            hint=f"load the module: modprobe {DRIVER}",
        )
    if driver == PF_STUB:
        if sriov.read_count(host, address):
            host.write(f"{path}/sriov_numvfs", "0")
        host.write(f"{pci.DRIVERS}/{PF_STUB}/unbind", address)
    _forget_stub_id(host, address)
    if host.read(f"{path}/driver_override").strip() not in ("", "(null)"):
        host.write(f"{path}/driver_override", "\n")
    host.write(f"{pci.DRIVERS}/{DRIVER}/bind", address)
    if pci.read_driver(host, address) != DRIVER:
        raise Problem(
            ProblemCode.DRIVER_DID_NOT_BIND, f"{address} did not go back from {driver or 'no driver'} to {DRIVER}"
        )


def _forget_stub_id(host: Host, address: str) -> None:
    """Remove the id that an interrupted script added to the stub driver: it would claim VFs of the same id too."""
    path = f"{pci.DRIVERS}/{PF_STUB}/remove_id"
    if not host.exists(path):
        return
    function = pci.read(host, address)
    try:
        host.write(path, f"{function.vendor_id} {function.device_id}\n")
    except Problem as problem:
        if problem.errno != "ENODEV":  # the driver has no such id
            raise


def _try_to_bind(host: Host, address: str) -> None:
    """Try to bind the card to nvidia. A failure is not raised: the problem that ends the run has the reason."""
    try:
        bind_to_nvidia(host, address)
    except Problem:
        return


def _unknown_board(host: Host, address: str) -> Problem:
    function = pci.read(host, address)
    board = f"{function.vendor_id}:{function.device_id}"
    known = sriov_health.known_boards(host)
    if known is None:
        listed = f"which boards it knows cannot be read from {SRIOV_MANAGE}"
    elif known:
        listed = f"it knows {', '.join(known)}"
    else:
        listed = "it knows no board"
    return Problem(
        ProblemCode.BOARD_UNKNOWN,
        f"sriov-manage does not know {address}, a {board}: it did nothing, said nothing and ended with 0; {listed}",
        path=SRIOV_MANAGE,
        hint="install a vGPU host driver that supports this board; one with display modes must be in the one for vGPU",
    )
