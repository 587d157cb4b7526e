# SPDX-License-Identifier: Apache-2.0
"""Health of SR-IOV on one of NVIDIA's cards as sysfs shows it now; what is healthy is `wire.vf_health`'s to say."""

import re
from typing import List, Optional, Tuple

from vgpuctl.agent.facts import pci, sriov
from vgpuctl.agent.facts.sharing import offers_types
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire import vf_health
from vgpuctl.agent.wire.values import dataclass
from vgpuctl.agent.wire.vf_health import DRIVER, VfState

SRIOV_MANAGE = "/usr/lib/nvidia/sriov-manage"
# The list of NVIDIA's script: device ids, each with a colon and the subsystem id where that matters.
_BOARDS = re.compile(r"^\s*SRIOV_ENABLED_GPUS=[(\"' ]*([0-9A-Fa-f: \t\n]*)", re.MULTILINE)


@dataclass(frozen=True)
class CardHealth:
    """One card. driver: of the PF. count: VFs as sriov_numvfs says; states: of those that can be seen."""

    driver: Optional[str]
    count: int
    states: Tuple[VfState, ...]

    @property
    def sick(self) -> Tuple[VfState, ...]:
        """The states of the VFs that can carry no vGPU."""
        return tuple(state for state in self.states if state is not VfState.HEALTHY)

    def is_as(self, count: int) -> bool:
        """Tell whether the card is on its driver with this number of VFs, all of them healthy."""
        return self.driver == DRIVER and self.count == count == len(self.states) and not self.sick

    def describe(self) -> str:
        """Say it in words: `32 VFs on no driver, 32 of 32 VFs without a driver`."""
        text = f"{self.count} VFs"
        if self.driver != DRIVER:
            text += f", the PF on {self.driver or 'no driver'}"
        if self.sick:
            text += f", {vf_health.describe(self.sick, len(self.states))}"
        return text


def read(host: Host, address: str) -> CardHealth:
    """Read the health of a card. Raises Problem."""
    states = [
        vf_health.state_of(pci.read_driver(host, vf), offers_types(host, vf))
        for _, vf in sriov.read_functions(host, address)
    ]
    return CardHealth(pci.read_driver(host, address), sriov.read_count(host, address), tuple(states))


def known_boards(host: Host) -> Optional[List[str]]:
    """Return the device ids (`20b0`) that this host's sriov-manage knows, None where its text does not tell."""
    match = _BOARDS.search(host.read_optional(SRIOV_MANAGE) or "")
    if match is None:
        return None
    return sorted({word.partition(":")[0].lower() for word in match[1].split() if word.partition(":")[0]})
