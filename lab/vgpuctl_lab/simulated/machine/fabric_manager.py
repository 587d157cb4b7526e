# SPDX-License-Identifier: Apache-2.0
"""Fabric Manager of a simulated host and its SDK, as fabric_library/ plays them on emulated hosts.

The functions have the names of libnvfm.so.1 and take what ctypes would hand it. Rules and tables: the Fabric Manager
user guide; docs/lab.md says what nobody has seen.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vgpuctl_lab.card_links import configured_mode, fabric_settings
from vgpuctl_lab.simulated.machine.shape import CardShape
from vgpuctl_lab.simulated.machine.state import FABRIC_MANAGER, MachineFolder, State

CODES = "/etc/vgpulab/nvfm_codes"
PROGRAM = "nv-fabricmanager"
VERSION_FAULT, FAILED_LINKS = "fabric-version", "nvlink-failed"
WINDOW_S = 60.0
"""How long a restarted Fabric Manager waits to be told the active partitions."""

_SHARED, _VGPU = 1, 2
_SUCCESS, _BADPARAM, _NOT_SUPPORTED, _UNINITIALIZED, _VERSION_MISMATCH, _IN_USE = 0, -1, -3, -4, -6, -7
_NOT_CONFIGURED, _CONNECTION_NOT_VALID, _RESOURCE_BAD = -8, -9, -11
_PARTITION_ID_IN_USE, _RESOURCE_USED_IN_ANOTHER_PARTITION = -17, -24
_MOST_PARTITIONS = 64
_INET, _UNIX, _VSOCK = 1, 2, 3
_IN_PROGRESS, _COMPLETED = 2, 3
_HALF, _MOST_PORT = 8, 65535
# Size of each structure, and its version in the highest byte.
_CONNECT_V1, _CONNECT_V2 = 268 | 1 << 24, 272 | 2 << 24
_PARTITION_LIST, _ACTIVATED_LIST = 131_852 | 1 << 24, 264 | 1 << 24
_FAILED_DEVICES, _UNSUPPORTED_LIST = 10_428 | 1 << 24, 4_616 | 1 << 24
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
_OTHER_VERSION = "570.86.15"

Modules = frozenset[int]


@dataclass(frozen=True)
class HgxBoard:
    """A baseboard. partitions: the modules of each by its id.

    names_gpus: UUID and address are told, and failed links are listed. needs_gpus: a missing GPU takes its partitions
    out of the list. line_rate: MB/s of a link, as nvidia-smi prints it.
    """

    partitions: dict[int, Modules]
    line_rate: int
    names_gpus: bool = False
    needs_gpus: bool = False


def _span(first: int, last: int) -> Modules:
    return frozenset(range(first, last + 1))


def _table(first_id: int, *groups: Modules, singles: int) -> dict[int, Modules]:
    found = [*groups, *(frozenset([module]) for module in range(1, singles + 1))]
    return dict(enumerate(found, start=first_id))


_A100 = HgxBoard(
    _table(
        0,
        _span(1, 16),
        _span(1, 8),
        _span(9, 16),
        _span(1, 4) | _span(9, 12),
        _span(5, 8) | _span(13, 16),
        _span(1, 4) | _span(13, 16),
        _span(5, 8) | _span(9, 12),
        *(_span(first, first + 3) for first in (1, 5, 9, 13)),
        *(_span(first, first + 1) for first in range(1, 16, 2)),
        singles=16,
    ),
    25781,
    names_gpus=True,
    needs_gpus=True,
)
_HALVES = (_span(1, 8), _span(1, 4), _span(5, 8))
_H100 = HgxBoard(_table(0, *_HALVES, *(frozenset(pair) for pair in ((1, 3), (2, 4), (5, 7), (6, 8))), singles=8), 26562)
_B200 = HgxBoard(_table(1, *_HALVES, *(_span(first, first + 1) for first in (1, 3, 5, 7)), singles=8), 53125)
BOARDS = {3: _A100, 4: _H100, 5: _B200}
"""By the generation of NVLink."""


def settle(state: State) -> None:
    """End a restarted Fabric Manager that nobody told its partitions in time: it knows none any more."""
    fabric = state.fabric
    if fabric.window_ends is not None and state.now() >= fabric.window_ends:
        fabric.active, fabric.window_ends = [], None
        state.services[FABRIC_MANAGER] = False


def is_running(state: State) -> bool:
    """True while Fabric Manager's process is there."""
    ends = state.fabric.window_ends
    return state.services.get(FABRIC_MANAGER, False) and (ends is None or state.now() < ends)


def start(machine: MachineFolder, state: State, *, keeps_partitions: bool, starting_s: float = 0.0) -> None:
    """Start it: it reads its mode.

    keeps_partitions: as with `--restart`; otherwise it sets the fabric up anew, without partitions.
    """
    fabric, now = state.fabric, state.now()
    state.services[FABRIC_MANAGER] = True
    fabric.mode, fabric.started_at = configured_mode(machine.root), time.time()
    fabric.was_restarted = keeps_partitions
    fabric.starting_until = now + starting_s if starting_s else 0.0
    fabric.window_ends = now + WINDOW_S if keeps_partitions else None
    if not keeps_partitions:
        fabric.active = []


def control(machine: MachineFolder, state: State, verb: str) -> tuple[int, str, str]:
    """`systemctl start`, `stop` or `restart` of it: (exit status, stdout, stderr)."""
    settle(state)
    if verb in ("stop", "restart"):
        state.services[FABRIC_MANAGER] = False
    if verb == "stop" or state.services[FABRIC_MANAGER]:
        return 0, "", ""
    if state.host_faults.get(VERSION_FAULT):
        return 1, "", f"Job for {FABRIC_MANAGER} failed because the control process exited with error code.\n"
    start(machine, state, keeps_partitions=fabric_settings(machine.root).get("FABRIC_MODE_RESTART") == "1")
    return 0, "", ""


def version(machine: MachineFolder) -> str:
    """What `nv-fabricmanager --version` prints: the driver's version, unless another package is installed."""
    differs = machine.state().host_faults.get(VERSION_FAULT)
    return f"Fabric Manager version is : {_OTHER_VERSION if differs else machine.shape.nvidia_driver}\n"


def fabric_state(state: State, card: CardShape) -> int:
    """NVML's state of a GPU's fabric: in the modes with partitions it is set up while one with it is active."""
    if state.fabric.mode not in (_SHARED, _VGPU):
        return _IN_PROGRESS if state.fabric.starting_until > state.now() else _COMPLETED
    partitions = BOARDS[card.links.version].partitions
    is_routed = any(card.links.module in partitions[one] for one in _active(state))
    return _COMPLETED if is_routed else _IN_PROGRESS


def _active(state: State) -> list[int]:
    ends = state.fabric.window_ends
    return state.fabric.active if ends is None or state.now() < ends else []


class _Refused(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def _require(condition: object, code: int) -> None:
    if not condition:
        raise _Refused(code)


class SimulatedNvfm:
    """One process's libnvfm: its functions by their names, each of which returns the code."""

    def __init__(self, machine: MachineFolder) -> None:
        self.machine = machine
        self._is_open = False
        # True for one to the socket of Fabric Manager's own processes, which answers nothing.
        self._connections: dict[int, bool] = {}

    def __getattr__(self, name: str) -> Callable[..., int]:
        """Return a function of the SDK."""
        method = _FUNCTIONS.get(name)
        if method is None:
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            try:
                method(self, name, *(getattr(one, "_obj", one) for one in arguments))
            except _Refused as refused:
                return refused.code
            return _SUCCESS

        return call

    # The library

    def _init(self, name: str) -> None:
        self._inject(name)
        _require(not self._is_open, _IN_USE)
        self._is_open = True

    def _shut_down(self, name: str) -> None:
        _require(self._is_open, _UNINITIALIZED)
        self._is_open = False
        self._connections = {}

    def _connect(self, name: str, parameters: Any, handle: Any) -> None:
        _require(self._is_open, _UNINITIALIZED)
        _require(parameters is not None and handle is not None, _BADPARAM)
        _require(parameters.version in (_CONNECT_V1, _CONNECT_V2), _VERSION_MISMATCH)
        self._inject(name)
        is_internal = self._reach(parameters)
        _require(self._board() and is_running(self.machine.state()), _CONNECTION_NOT_VALID)
        handle.value = max(self._connections, default=0) + 1
        self._connections[handle.value] = is_internal

    def _disconnect(self, name: str, handle: Any) -> None:
        _require(self._is_open, _UNINITIALIZED)
        _require(handle.value in self._connections, _BADPARAM)
        del self._connections[handle.value]

    def _reach(self, parameters: Any) -> bool:
        """Find what listens at the address; True for the socket of Fabric Manager's own processes."""
        config = fabric_settings(self.machine.root)
        address, listening = parameters.addressInfo.decode(), config.get("FM_CMD_UNIX_SOCKET_PATH", "")
        kind = parameters.addressType if parameters.version == _CONNECT_V2 else 0
        if kind not in (_INET, _UNIX, _VSOCK):
            kind = _UNIX if parameters.addressIsUnixSocket else _INET
        if kind == _UNIX:
            internal = config.get("UNIX_SOCKET_PATH", "")
            if internal and address == internal:
                return True
            _require(listening and address == listening, _CONNECTION_NOT_VALID)
            return False
        _require(kind == _INET, _CONNECTION_NOT_VALID)
        place, colon, port = address.partition(":")
        place = "127.0.0.1" if place == "localhost" else place
        _require(_ADDRESS.fullmatch(place) and (not colon or (port.isdecimal() and int(port) <= _MOST_PORT)), _BADPARAM)
        there = (config.get("FM_CMD_BIND_INTERFACE", "127.0.0.1"), config.get("FM_CMD_PORT_NUMBER", "6666"))
        _require(not listening and (place, port or "6666") == there, _CONNECTION_NOT_VALID)
        return False

    # The partitions

    def _list(self, name: str, handle: Any, found: Any) -> None:
        state = self.machine.state()
        self._begin(name, handle, state, found, _PARTITION_LIST, partitions=True)
        supported = self._supported()
        found.maxNumPartitions = sum(modules <= self._board_modules() for modules in self._partitions().values())
        found.numPartitions = len(supported)
        for told, (number, modules) in zip(found.partitionInfo, supported.items(), strict=False):
            told.partitionId, told.isActive, told.numGpus = number, number in state.fabric.active, len(modules)
            for gpu, module in zip(told.gpuInfo, sorted(modules), strict=False):
                self._describe(state, gpu, module, is_single=len(modules) == 1)

    def _describe(self, state: State, told: Any, module: int, *, is_single: bool) -> None:
        """Fill the entry of a GPU. One that is alone in its partition has no links there."""
        card, board = self._gpus().get(module), self._board()
        most = 0 if is_single else next(iter(self._gpus().values())).links.count
        told.physicalId, told.maxNumNvLinks, told.nvlinkLineRateMBps = module, most, board.line_rate
        told.numNvLinksAvailable = max(most - state.fault(card, FAILED_LINKS), 0) if card else 0
        told.uuid, told.pciBusId = self._names(card)

    def _activate(self, name: str, handle: Any, number: int) -> None:
        with self.machine.change() as state:
            self._begin(name, handle, state, partitions=True)
            _require(state.fabric.mode == _SHARED, _NOT_SUPPORTED)
            _require(number in self._supported(), _BADPARAM)
            self._add(state, number)

    def _activate_with_vfs(self, name: str, handle: Any, number: int, vfs: Any, count: int) -> None:
        with self.machine.change() as state:
            self._begin(name, handle, state, partitions=True)
            _require(state.fabric.mode == _VGPU, _NOT_SUPPORTED)
            _require(number in self._supported() and vfs is not None, _BADPARAM)
            cards = [self._gpus().get(module) for module in sorted(self._partitions()[number])]
            _require(len(cards) == count, _BADPARAM)
            for vf, card in zip(vfs, cards, strict=False):
                routing = vf.device * 8 + vf.function
                address = f"{vf.domain:04x}:{vf.bus:02x}:{routing >> 3:02x}.{routing & 7}"
                _require(card and address in state.vfs_of(card), _BADPARAM)
            self._add(state, number)

    def _deactivate(self, name: str, handle: Any, number: int) -> None:
        with self.machine.change() as state:
            self._begin(name, handle, state, partitions=True)
            _require(number in self._supported(), _BADPARAM)
            _require(number in state.fabric.active, _UNINITIALIZED)
            state.fabric.active.remove(number)

    def _set_active(self, name: str, handle: Any, asked: Any) -> None:
        """Take the partitions that were active before its restart; at any other time it needs no list."""
        with self.machine.change() as state:
            self._begin(name, handle, state, asked, _ACTIVATED_LIST)
            _require(state.fabric.window_ends is not None, _NOT_SUPPORTED)
            _require(asked.numPartitions <= _MOST_PARTITIONS, _BADPARAM)
            wanted, supported = list(asked.partitionIds[: asked.numPartitions]), self._supported()
            _require(all(one in supported for one in wanted), _BADPARAM)
            used = [module for one in wanted for module in supported[one]]
            _require(len(used) == len(set(used)), _BADPARAM)
            state.fabric.active, state.fabric.window_ends = wanted, None

    def _list_failed(self, name: str, handle: Any, found: Any) -> None:
        """From H100 on the links train without Fabric Manager, and the list is empty."""
        state = self.machine.state()
        self._begin(name, handle, state, found, _FAILED_DEVICES)
        _require(not (self._board().names_gpus and state.fabric.was_restarted), _NOT_SUPPORTED)
        found.numGpus = found.numSwitches = 0
        for card in self._gpus().values() if self._board().names_gpus else ():
            failed = min(state.fault(card, FAILED_LINKS), card.links.count)
            if failed:
                told = found.gpuInfo[found.numGpus]
                told.uuid, told.pciBusId = self._names(card)
                told.numPorts, told.portNum[:failed] = failed, range(failed)
                found.numGpus += 1

    def _list_unsupported(self, name: str, handle: Any, found: Any) -> None:
        self._begin(name, handle, self.machine.state(), found, _UNSUPPORTED_LIST, partitions=True)
        supported = self._supported()
        absent = [
            (number, sorted(modules))
            for number, modules in self._partitions().items()
            if modules <= self._board_modules() and number not in supported
        ]
        found.numPartitions = len(absent)
        for told, (number, modules) in zip(found.partitionInfo, absent, strict=False):
            told.partitionId, told.numGpus, told.gpuPhysicalIds[: len(modules)] = number, len(modules), modules

    # What the calls share

    def _begin(
        self,
        name: str,
        handle: Any,
        state: State,
        structure: Any = None,
        version_word: int = 0,
        *,
        partitions: bool = False,
    ) -> None:
        _require(self._is_open, _UNINITIALIZED)
        if version_word:
            _require(structure is not None, _BADPARAM)
            _require(structure.version == version_word, _VERSION_MISMATCH)
        _require(handle.value in self._connections, _BADPARAM)
        _require(not self._connections[handle.value], _UNINITIALIZED)
        self._inject(name)
        _require(is_running(state), _CONNECTION_NOT_VALID)
        _require(state.fabric.starting_until <= state.now(), _NOT_CONFIGURED)
        if partitions:
            _require(state.fabric.mode in (_SHARED, _VGPU), _NOT_SUPPORTED)
            _require(state.fabric.window_ends is None, _NOT_CONFIGURED)

    def _add(self, state: State, number: int) -> None:
        modules, partitions = self._partitions()[number], self._partitions()
        _require(modules <= self._gpus().keys(), _RESOURCE_BAD)
        _require(number not in state.fabric.active, _PARTITION_ID_IN_USE)
        _require(
            all(modules.isdisjoint(partitions[one]) for one in state.fabric.active),
            _RESOURCE_USED_IN_ANOTHER_PARTITION,
        )
        state.fabric.active.append(number)

    def _inject(self, name: str) -> None:
        """Codes that functions must return: lines `fmConnect -6` of a file on the disk."""
        try:
            lines = (self.machine.root / CODES.lstrip("/")).read_text().splitlines()
        except FileNotFoundError:
            return
        codes = {function: int(code) for function, code in (line.split() for line in lines)}
        _require(not codes.get(name), codes.get(name, 0))

    def _gpus(self) -> dict[int, CardShape]:
        return {card.links.module: card for card in self.machine.shape.cards if card.links.has_switch}

    def _board(self) -> HgxBoard:
        card = next(iter(self._gpus().values()), None)
        if card is None:
            raise _Refused(_CONNECTION_NOT_VALID)
        return BOARDS[card.links.version]

    def _board_modules(self) -> Modules:
        """The modules of as many halves of the board as have a GPU."""
        return _span(1, 16 if max(self._gpus()) > _HALF else _HALF)

    def _partitions(self) -> dict[int, Modules]:
        return self._board().partitions

    def _supported(self) -> dict[int, Modules]:
        present = self._gpus().keys()
        needs_gpus = self._board().needs_gpus
        return {number: one for number, one in self._partitions().items() if not needs_gpus or one <= present}

    def _names(self, card: CardShape | None) -> tuple[bytes, bytes]:
        if card is None or not self._board().names_gpus:
            return b"", b""
        return card.uuid.encode(), f"0000{card.address.upper()}".encode()


_FUNCTIONS: dict[str, Callable[..., None]] = {
    "fmLibInit": SimulatedNvfm._init,
    "fmLibShutdown": SimulatedNvfm._shut_down,
    "fmConnect": SimulatedNvfm._connect,
    "fmDisconnect": SimulatedNvfm._disconnect,
    "fmGetSupportedFabricPartitions": SimulatedNvfm._list,
    "fmActivateFabricPartition": SimulatedNvfm._activate,
    "fmActivateFabricPartitionWithVFs": SimulatedNvfm._activate_with_vfs,
    "fmDeactivateFabricPartition": SimulatedNvfm._deactivate,
    "fmSetActivatedFabricPartitions": SimulatedNvfm._set_active,
    "fmGetNvlinkFailedDevices": SimulatedNvfm._list_failed,
    "fmGetUnsupportedFabricPartitions": SimulatedNvfm._list_unsupported,
}
