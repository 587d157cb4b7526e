# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's catalogue of Xids: what each code asks for, as a class of findings.

Source: docs.nvidia.com/deploy/xid-errors, "Analyzing Xid Errors with the Xid Catalog", immediate action for Ampere and
later, in the form that leptonai/gpud generates from it (components/accelerator/nvidia/xid/catalog_generated.go,
2025-10-29). `CONTACT_SUPPORT` is also the class of every code that the catalogue does not use or has no action for.
"""

from collections.abc import Iterable, Mapping

from vgpuctl.agent.wire.health import Xid
from vgpuctl.model.health import HealthCode


def _codes(*ranges: int | tuple[int, int]) -> frozenset[int]:
    spans = ((one, one) if isinstance(one, int) else one for one in ranges)
    return frozenset(code for first, last in spans for code in range(first, last + 1))


GPU_RECOVERY_ACTION_CHANGED = 154

CLASSES: Mapping[HealthCode, frozenset[int]] = {
    HealthCode.XID_RESTART_APP: _codes(
        *(8, 11, 13, 25, 31, 32, 60, 68, 69, 80, 82, 83, 84, 85, 86, 88, 89, 94, 139),
        *((39, 41), (70, 72), (75, 77), (96, 98), (99, 105), (126, 135)),
    ),
    HealthCode.XID_IGNORE: _codes(
        *(14, 37, 38, 43, 44, 63, 66, 67, 92, 93, 121, 137, 141, 152, 153, 160, 161), (106, 108)
    ),
    HealthCode.XID_RESET_GPU: _codes(46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158),
    HealthCode.XID_RESTART_BM: _codes(79),
    HealthCode.XID_RESTART_VM: _codes(151),
    HealthCode.XID_CHECK_MECHANICALS: _codes(54),
    HealthCode.XID_UPDATE_SWFW: _codes(78),
    HealthCode.XID_CHECK_UVM: _codes(159),
    HealthCode.XID_WORKFLOW_45: _codes(45),
    HealthCode.XID_WORKFLOW_48: _codes(48, 171, 172),
    HealthCode.XID_WORKFLOW_NVLINK: _codes(74, (144, 150)),
    # The catalogue ignores 157: the card has no spare left for its next bad memory, so it takes no new VM.
    HealthCode.XID_CONTACT_SUPPORT: _codes(142, 157),
}
# The words of Xid 154 for the action that the driver asks for now.
_RECOVERY_ACTIONS = {
    "Node Reboot Required": HealthCode.XID_RESTART_BM,
    "GPU Reset Required": HealthCode.XID_RESET_GPU,
    "Drain and Reset": HealthCode.XID_RESET_GPU,
    "Drain P2P": HealthCode.XID_RESET_GPU,
    "None": HealthCode.XID_IGNORE,
}


def classify(code: int, text: str) -> HealthCode:
    """The class of an Xid. text: the driver's words after the code, which decide for Xid 154."""
    if code == GPU_RECOVERY_ACTION_CHANGED:
        wanted = text.rpartition(" to ")[2]
        found = (action for words, action in _RECOVERY_ACTIONS.items() if words in wanted)
        return next(found, HealthCode.XID_CONTACT_SUPPORT)
    found = (one for one, codes in CLASSES.items() if code in codes)
    return next(found, HealthCode.XID_CONTACT_SUPPORT)


def asks_itself(xid: Xid) -> bool:
    """True for an Xid 154 that asks for an action. The catalogue ranks it above the Xids beside it."""
    return xid.code == GPU_RECOVERY_ACTION_CHANGED and classify(xid.code, xid.text) is not HealthCode.XID_IGNORE


def strays(codes: Iterable[int]) -> set[int]:
    """Codes that follow from another one: Xid 45 (a channel was ended) says nothing beside an Xid that explains it."""
    found = set(codes)
    return {45} & found if found - {45} else set()
