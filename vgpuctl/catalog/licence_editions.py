# SPDX-License-Identifier: Apache-2.0
"""Licence editions of vGPU types.

Sources: NVIDIA Virtual GPU Software Client Licensing User Guide, table of products by series; the license strings of
ctrl2080gpu.h in NVIDIA/open-gpu-kernel-modules, which name the workstation licence for B and C types too.
"""

from collections.abc import Sequence

from vgpuctl.catalog.names import series_of
from vgpuctl.model.licence import Edition

_OF_SERIES = {
    "Q": (Edition.VWS,),
    "B": (Edition.VPC, Edition.VWS),
    "A": (Edition.VAPPS,),
    "C": (Edition.VCS,),
}
_ON_DEMAND = {"C": (Edition.VWS,)}

EDITIONS_OF_CARDS = (Edition.VWS, Edition.VCS)
"""What a guest with a whole GPU may run: FeatureType 2 and 4 of gridd.conf, both only on demand."""


def editions_of_type(name: str) -> tuple[Edition, ...]:
    """Editions that a vGPU of this type takes by itself, the preferred one first; empty where it needs no licence."""
    return _OF_SERIES.get(series_of(name) or "", ())


def allowed_editions(name: str) -> tuple[Edition, ...]:
    """Editions that a vGPU of this type may run, those on demand last."""
    return editions_of_type(name) + _ON_DEMAND.get(series_of(name) or "", ())


def editions_for(profiles: Sequence[str], asked: Edition | None, *, has_card: bool) -> tuple[Edition, ...] | None:
    """Editions that one licence of a VM may be of, the preferred one first.

    profiles: of its vGPUs; one licence serves all of them. asked: the VM's `licence`. has_card: a whole GPU or a plain
    VF is there, which needs a licence only on demand. Empty: it needs none. None: no such licence exists.
    """
    types = [name for name in profiles if editions_of_type(name)]
    if asked is not None:
        if types:
            return (asked,) if all(asked in allowed_editions(name) for name in types) else None
        return (asked,) if has_card and asked in EDITIONS_OF_CARDS else None
    if not types:
        return ()
    first, *others = types
    common = [one for one in editions_of_type(first) if all(one in allowed_editions(name) for name in others)]
    if not common:
        common = [one for one in allowed_editions(first) if all(one in allowed_editions(name) for name in others)]
    return tuple(common) or None
