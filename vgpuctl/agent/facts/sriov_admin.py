# SPDX-License-Identifier: Apache-2.0
"""The part of the card that Intel's driver `xe` gives a function: its folder `sriov_admin` (reference open-gpus, 6.1).

Source: Linux Documentation/ABI/testing/sysfs-driver-intel-xe-sriov; the folder is there since Linux 6.19, `vram_quota`
since 7.0 and on discrete cards alone.
"""

import json
import re
from typing import Dict, Optional, Sequence

from vgpuctl.agent.facts import pci
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode

PRIORITY = "sched_priority"
SETTABLE = ("exec_quantum_ms", "preempt_timeout_us")
MEMORY = "vram_quota"
FIRST = "/run/vgpuctl/vf-params.json"
"""What the driver had before the agent set parameters, by VF. It goes with the boot, as VFs do."""
OF_FUNCTION = (*SETTABLE, PRIORITY, MEMORY)
_CHOSEN = re.compile(r"\[(\w{1,40})\]")
DIFFERS = "differs"
"""The value of a parameter for which the card's tiles have different ones; reading it is EUCLEAN."""


_FOLDER = "sriov_admin"


def is_there(host: Host, physical: str) -> bool:
    """Tell whether the card's driver has parameters of VFs."""
    return _FOLDER in host.listdir(pci.folder(physical))


def folder(physical: str, number: Optional[int]) -> str:
    """Return the folder of a function's parameters.

    number: of the VF's link `virtfnN`, None for the PF; the driver counts VFs from 1.
    """
    return f"{pci.folder(physical)}/{_FOLDER}/{'pf' if number is None else f'vf{number + 1}'}/profile"


def stop_file(physical: str, number: int) -> str:
    """Return the file that stops the work of a VF until its next reset."""
    return f"{pci.folder(physical)}/{_FOLDER}/vf{number + 1}/stop"


def of_all(physical: str, name: str) -> str:
    """Return the file that sets a parameter of all VFs; it cannot be read."""
    return f"{pci.folder(physical)}/{_FOLDER}/.bulk_profile/{name}"


def read(host: Host, physical: str, number: Optional[int]) -> Optional[str]:
    """Return `exec_quantum_ms=20,preempt_timeout_us=0,sched_priority=low`, None where the driver has no such folder."""
    values = read_values(host, physical, number)
    return write(values) if values else None


def read_values(host: Host, physical: str, number: Optional[int]) -> Dict[str, str]:
    """Return the parameters that the driver has for a function, by name."""
    found = {}
    for name in OF_FUNCTION:
        try:
            text = host.read_optional(f"{folder(physical, number)}/{name}")
        except Problem as problem:
            if problem.errno != "EUCLEAN":
                raise
            text = DIFFERS
        if text is not None:
            chosen = _CHOSEN.search(text) if name == PRIORITY else None
            found[name] = chosen[1] if chosen else text.strip()[:40]
    return found


def read_first(host: Host) -> Dict[str, Dict[str, str]]:
    """Return the driver's values of parameters that the agent has set, by VF. Raises Problem."""
    try:
        found = json.loads(host.read_optional(FIRST) or "{}")
        return {str(address): {str(name): str(value) for name, value in own.items()} for address, own in found.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise Problem(ProblemCode.UNEXPECTED_VALUE, f"{FIRST} cannot be read: {error}", path=FIRST) from error


def note_first(host: Host, address: str, values: Dict[str, str]) -> None:
    """Note the driver's values of a VF, none to forget it. Raises Problem."""
    found = {other: own for other, own in read_first(host).items() if other != address}
    if values:
        found[address] = values
    host.put_file(FIRST, json.dumps(found, sort_keys=True).encode(), 0o644)


def write(values: Dict[str, str]) -> str:
    """Write parameters as one text."""
    return ",".join(f"{name}={value}" for name, value in sorted(values.items()))


def split(text: str, names: Sequence[str] = SETTABLE) -> Dict[str, str]:
    """Read what `write` writes of parameters that can be set. Raises Problem `bad-params`."""
    pairs = [one.partition("=") for one in text.split(",") if text]
    if not all(name in names and value for name, _, value in pairs):
        raise Problem(ProblemCode.BAD_PARAMS, f"{text[:200]!a} is no list of parameters of a function")
    return {name: value for name, _, value in pairs}
