# SPDX-License-Identifier: Apache-2.0
"""The files `sriov_admin` of a card's PF and VFs, as Intel's driver xe of Linux 7.0 has them (open-gpus, 6.1)."""

from collections.abc import Iterator

from vgpuctl_lab.simulated.machine.shape import CardShape
from vgpuctl_lab.simulated.machine.state import State

INTEL_DRIVER = "xe"
VF_DEFAULTS = {"exec_quantum_ms": "0", "preempt_timeout_us": "0", "sched_priority": "low"}
VF_MOST = {"exec_quantum_ms": 100_000, "preempt_timeout_us": 100_000_000}
"""The driver's maxima, from memory: nobody has looked."""
PRIORITIES = ("low", "normal", "high")


def files(state: State, card: CardShape) -> dict[str, str]:
    """The files of a card and their contents: of each VF that it can have, enabled or not."""
    found: dict[str, str] = {}
    for folder, address in _functions(state, card):
        values = VF_DEFAULTS | state.vf_params.get(address, {})
        found[f"{folder}/profile/exec_quantum_ms"] = values["exec_quantum_ms"]
        found[f"{folder}/profile/preempt_timeout_us"] = values["preempt_timeout_us"]
        priorities = (f"[{one}]" if one == values["sched_priority"] else one for one in PRIORITIES)
        found[f"{folder}/profile/sched_priority"] = " ".join(priorities)
        if address != card.address:
            found[f"{folder}/profile/vram_quota"] = str(memory_quota(state, card, address))
            found[f"{folder}/stop"] = ""
    if found:
        found |= {f"{_folder(card)}/.bulk_profile/{name}": "" for name in (*VF_DEFAULTS, "vram_quota")}
    return found


def links(state: State, card: CardShape) -> dict[str, str]:
    """The links to the functions that are there, and their targets."""
    there = {card.address, *state.vfs_of(card)}
    functions = _functions(state, card)
    return {f"{folder}/device": card.folder(address) for folder, address in functions if address in there}


def _folder(card: CardShape) -> str:
    return f"{card.folder(card.address)}/sriov_admin"


def _functions(state: State, card: CardShape) -> Iterator[tuple[str, str]]:
    """The folder and the address of the PF and of each VF; none without the driver, or with an older one."""
    has_driver = card.driver == INTEL_DRIVER and state.drivers.get(card.address) == INTEL_DRIVER
    if has_driver and card.total_vfs and not state.fault(card, "no-sriov-admin"):
        yield f"{_folder(card)}/pf", card.address
        for number in range(card.total_vfs):
            yield f"{_folder(card)}/vf{number + 1}", card.vf_address(number)


def memory_quota(state: State, card: CardShape, vf: str) -> int:
    """The memory of a VF in bytes. Without a word before they are enabled, VFs have equal parts."""
    own = state.vf_params.get(vf, {}).get("vram_quota")
    if own is not None:
        return int(own)
    is_divided = vf in state.vfs_of(card) and card.address not in state.quotas_by_hand
    return (card.memory_mib << 20) // state.vf_counts[card.address] if is_divided else 0
