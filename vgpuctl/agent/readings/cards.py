# SPDX-License-Identifier: Apache-2.0
"""Readings of all GPUs through NVML. A GPU that does not answer in time costs only its own readings.

A call of NVML that hangs in the driver cannot be ended. It keeps its thread, and the GPU is left out until the call
returns.
"""

import threading
from functools import partial
from typing import Callable, Dict, List, Mapping, Optional

from vgpuctl.agent.facts import nvidia
from vgpuctl.agent.host import Host
from vgpuctl.agent.mistakes import sentence
from vgpuctl.agent.nvml import Nvml, text
from vgpuctl.agent.readings import gpu, shares, vgpu
from vgpuctl.agent.readings.devices import Devices
from vgpuctl.agent.readings.domains import RunningDomain
from vgpuctl.agent.readings.instances import Instances
from vgpuctl.agent.readings.recorder import Recorder
from vgpuctl.agent.readings.xids import XidCounts
from vgpuctl.agent.wire.bus_id import normalise_bus_id
from vgpuctl.agent.wire.readings import GpuReadings, InstanceReadings, VgpuReadings

# Of one GPU, and of all of them: the other side gives up after a minute.
LIMIT_S, LIMIT_OF_ALL_S = 10.0, 30.0
_CARDS_AT_MOST = 1024


class Card:
    """One GPU while it is read. Its readings stay empty until all of them are there."""

    def __init__(self, nvml: Nvml, index: int) -> None:
        """Find the GPU of an index. Raises NVMLError."""
        library = nvml.library
        self.nvml = nvml
        self.device = library.nvmlDeviceGetHandleByIndex(index)
        self.address = normalise_bus_id(text(library.nvmlDeviceGetPciInfo(self.device).busId) or "")
        self.uuid = text(nvml.if_possible(lambda: library.nvmlDeviceGetUUID(self.device)))
        self.model = text(nvml.if_possible(lambda: library.nvmlDeviceGetName(self.device)))
        self.instances = Instances(nvml, self.device)
        self.unread: List[str] = []
        self.gpus: List[GpuReadings] = []
        self.vgpus: List[VgpuReadings] = []
        self.parts: List[InstanceReadings] = []

    def begin(self, host: Host) -> None:
        """Take the first samples of its GPU instances. Raises NVMLError."""
        self.instances.take_first(host)

    def read(self, host: Host, xids: Optional[XidCounts], loaded_since_s: Optional[float], devices: Devices) -> None:
        """Read everything else. A GPU that is lost on the way keeps what was read of it."""
        unread: List[str] = []
        found = gpu.read(self.nvml, self.device, loaded_since_s=loaded_since_s)
        record_xids(found, self.address, xids)
        vgpus: List[VgpuReadings] = []
        parts: List[InstanceReadings] = []
        try:
            instances = self.instances
            unread += [f"{self.address}: {problem}" for problem in instances.problems]
            running = vgpu.read(self.nvml, self.device, self.address, unread)
            parts = instances.read(host, self.address)
            gpu.complete(found, instances)
            vgpus = shares.complete(
                self.address,
                running,
                policy=found.measured().label("scheduler_policy"),
                instances=instances,
                devices=devices.find(self.address, running, unread),
            )
        except self.nvml.library.NVMLError as error:
            unread.append(f"{self.address}: NVML does not tell its vGPUs: {error} (NVML {error.value})")
        # All at once: whoever waits for this may have given up.
        measured = found.measured()
        self.unread, self.parts, self.vgpus = unread, parts, vgpus
        self.gpus = [GpuReadings(self.address, self.uuid, self.model, nvidia.DRIVER, measured)]


def record_xids(found: Recorder, address: str, xids: Optional[XidCounts]) -> None:
    """Record the Xids of a GPU; a GPU without any has none to tell."""
    if xids is None:
        found.unread("xid", "the kernel's log cannot be read")
        return
    for (code, name), number in sorted(xids.of(address).items()):
        found.add("xid", number, code, name)


class Cards:
    """The GPUs of a host, read one after the other. found: those that answered."""

    def __init__(self, host: Host, unread: List[str]) -> None:
        self._host = host
        self._unread = unread
        self._end_s = host.monotonic() + LIMIT_OF_ALL_S
        self.found: List[Card] = []

    def read(
        self, xids: Optional[XidCounts], loaded_since_s: Optional[float], domains: Mapping[str, RunningDomain]
    ) -> None:
        """Read all GPUs that answer."""
        opened: List[Nvml] = []
        if not self._within("NVML", lambda: self._open(opened)) or not opened:
            return
        nvml = opened[0]
        counted: List[int] = []
        self._within("NVML", lambda: counted.append(int(nvml.library.nvmlDeviceGetCount())), nvml)
        cards: Dict[int, Card] = {}
        devices = Devices(self._host, domains)
        for index in range(min(counted[0] if counted else 0, _CARDS_AT_MOST)):
            self._within(f"GPU {index}", partial(self._begin, nvml, index, cards), nvml)
        for index, card in list(cards.items()):
            if self._within(f"GPU {index}", partial(card.read, self._host, xids, loaded_since_s, devices), nvml):
                self.found.append(card)
                self._unread += card.unread
        # The end of NVML waits for calls that hang.
        if not any(thread.is_alive() for thread in self._host.hanging.values()):
            self._within("NVML", lambda: nvml.__exit__(None, None, None))

    def _open(self, opened: List[Nvml]) -> None:
        nvml, problem = Nvml.open(self._host)
        if nvml is None:
            self._unread.append(problem or "NVML cannot be used")
        else:
            opened.append(nvml)

    def _begin(self, nvml: Nvml, index: int, cards: Dict[int, Card]) -> None:
        card = Card(nvml, index)
        card.begin(self._host)
        cards[index] = card

    def _within(self, what: str, call: Callable[[], None], nvml: Optional[Nvml] = None) -> bool:
        """Call in a thread and wait for its end. Returns whether it came; else a sentence says why not."""
        hanging = self._host.hanging
        before = hanging.get(what)
        if before is not None and before.is_alive():
            self._unread.append(f"{what} is left out: an earlier call of the driver has not returned")
            return False
        limit_s = min(LIMIT_S, self._end_s - self._host.monotonic())
        if limit_s <= 0:
            self._unread.append(f"{what} is left out: the other GPUs took {LIMIT_OF_ALL_S:g} s")
            return False
        failures: List[BaseException] = []
        thread = threading.Thread(target=_catch, args=(call, failures), name=f"readings of {what}", daemon=True)
        thread.start()
        thread.join(limit_s)
        if thread.is_alive():
            hanging[what] = thread
            self._unread.append(f"{what} did not answer within {limit_s:.0f} s: a call of the driver hangs")
            return False
        hanging.pop(what, None)
        if not failures:
            return True
        failure = failures[0]
        if not isinstance(failure, Exception):
            raise failure
        if nvml is None or not isinstance(failure, nvml.library.NVMLError):
            self._unread.append(sentence(what, failure))
        else:
            self._unread.append(f"NVML: {what} does not answer: {failure} (NVML {failure.value})")
        return False


def _catch(call: Callable[[], None], failures: List[BaseException]) -> None:
    try:
        call()
    except BaseException as error:  # noqa: BLE001 - the thread that waits tells or raises it
        failures.append(error)
