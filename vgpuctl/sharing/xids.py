# SPDX-License-Identifier: Apache-2.0
"""Xids as findings: the classes of NVIDIA's catalogue (agent/wire/xid_classes.py) as codes of findings."""

from collections.abc import Iterable, Mapping

from vgpuctl.agent.wire import xid_classes
from vgpuctl.agent.wire.health import Xid
from vgpuctl.agent.wire.xid_classes import GPU_RECOVERY_ACTION_CHANGED, xid_class
from vgpuctl.model.health import HealthCode

CLASSES: Mapping[HealthCode, frozenset[int]] = {
    HealthCode(f"xid-{name}"): codes for name, codes in xid_classes.CLASSES.items()
}


def classify(code: int, text: str) -> HealthCode:
    """The class of an Xid. text: the driver's words after the code, which decide for Xid 154."""
    return HealthCode(f"xid-{xid_class(code, text)}")


def asks_itself(xid: Xid) -> bool:
    """True for an Xid 154 that asks for an action. The catalogue ranks it above other Xids of the same time."""
    return xid.code == GPU_RECOVERY_ACTION_CHANGED and classify(xid.code, xid.text) is not HealthCode.XID_IGNORE


def strays(codes: Iterable[int]) -> set[int]:
    """Codes that follow from another one: Xid 45 (a channel was ended) says nothing beside an Xid that explains it."""
    found = set(codes)
    return {45} & found if found - {45} else set()
