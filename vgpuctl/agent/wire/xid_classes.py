# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's catalogue of Xids: what each code asks for. Python 3.9, standard library only.

Source: docs.nvidia.com/deploy/xid-errors, "Analyzing Xid Errors with the Xid Catalog", immediate action for Ampere and
later, in the form that leptonai/gpud generates from it (components/accelerator/nvidia/xid/catalog_generated.go,
2025-10-29). CONTACT_SUPPORT is also the class of every code that the catalogue does not use or has no action for.
"""

from typing import Dict, FrozenSet, Tuple, Union

RESTART_APP, IGNORE, RESET_GPU, RESTART_BM = "restart-app", "ignore", "reset-gpu", "restart-bm"
RESTART_VM, CHECK_MECHANICALS, UPDATE_SWFW, CHECK_UVM = "restart-vm", "check-mechanicals", "update-swfw", "check-uvm"
WORKFLOW_45, WORKFLOW_48, WORKFLOW_NVLINK = "workflow-45", "workflow-48", "workflow-nvlink"
CONTACT_SUPPORT = "contact-support"
GPU_RECOVERY_ACTION_CHANGED = 154


def _codes(*ranges: Union[int, Tuple[int, int]]) -> FrozenSet[int]:
    spans = ((one, one) if isinstance(one, int) else one for one in ranges)
    return frozenset(code for first, last in spans for code in range(first, last + 1))


CLASSES: Dict[str, FrozenSet[int]] = {
    RESTART_APP: _codes(
        *(8, 11, 13, 25, 31, 32, 60, 68, 69, 80, 82, 83, 84, 85, 86, 88, 89, 94, 139),
        *((39, 41), (70, 72), (75, 77), (96, 98), (99, 105), (126, 135)),
    ),
    IGNORE: _codes(*(14, 37, 38, 43, 44, 63, 66, 67, 92, 93, 121, 137, 141, 152, 153, 160, 161), (106, 108)),
    RESET_GPU: _codes(46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158),
    RESTART_BM: _codes(79),
    RESTART_VM: _codes(151),
    CHECK_MECHANICALS: _codes(54),
    UPDATE_SWFW: _codes(78),
    CHECK_UVM: _codes(159),
    WORKFLOW_45: _codes(45),
    WORKFLOW_48: _codes(48, 171, 172),
    WORKFLOW_NVLINK: _codes(74, (144, 150)),
    # The catalogue ignores 157: the card has no spare left for its next bad memory, so it takes no new VM.
    CONTACT_SUPPORT: _codes(142, 157),
}
# The words of Xid 154 for the action that the driver asks for now.
_RECOVERY_ACTIONS = {
    "Node Reboot Required": RESTART_BM,
    "GPU Reset Required": RESET_GPU,
    "Drain and Reset": RESET_GPU,
    "Drain P2P": RESET_GPU,
    "None": IGNORE,
}


def xid_class(code: int, text: str) -> str:
    """Return the class of an Xid. text: the driver's words after the code, which decide for Xid 154."""
    if code == GPU_RECOVERY_ACTION_CHANGED:
        wanted = text.rpartition(" to ")[2]
        actions = (action for words, action in _RECOVERY_ACTIONS.items() if words in wanted)
        return next(actions, CONTACT_SUPPORT)
    found = (one for one, codes in CLASSES.items() if code in codes)
    return next(found, CONTACT_SUPPORT)
