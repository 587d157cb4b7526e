# SPDX-License-Identifier: Apache-2.0
"""list-controllers: the controllers of a store, whether each one lives, and the hosts that it watches."""

import enum
import time
from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.model.backup import RestoreMark
from vgpuctl.model.plural import counted
from vgpuctl.store.controllers import Controller
from vgpuctl.store.liveness import is_running
from vgpuctl.usecases.operate.division import BEAT_S
from vgpuctl.usecases.running.services import Services

LIMIT_S = 2 * BEAT_S
_PAUSE_S = 0.5


class ControllerState(enum.StrEnum):
    """running: its beat rose. silent: it did not within LIMIT_S. ended: its process on this machine is gone."""

    RUNNING = "running"
    SILENT = "silent"
    ENDED = "ended"


@dataclass(frozen=True)
class ListedController:
    """One controller. machine: its host name. begun_at: seconds since the epoch, UTC. hosts: those that it watches."""

    machine: str
    pid: int
    state: ControllerState
    begun_at: float
    hosts: tuple[str, ...]


def list_controllers(services: Services, *, has_inventory: bool) -> tuple[Sequence[ListedController], Sequence[str]]:
    """Return the controllers, and the hosts that no running one watches: of the inventory, else those ever served.

    Waits until each controller has counted a beat, at most LIMIT_S.
    """
    first = _read(services)
    ended = {one.id for one in first if is_running(one) is False}
    waiting = {one.id: one.beat for one in first if one.id not in ended}
    if waiting:
        services.say(f"waiting for a beat of {counted(len(waiting), 'controller')}, at most {LIMIT_S:g} s")
    deadline = time.monotonic() + LIMIT_S
    while waiting and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
        now = {one.id: one.beat for one in _read(services)}
        # One that has left the store meanwhile has ended.
        ended |= waiting.keys() - now.keys()
        waiting = {name: beat for name, beat in waiting.items() if now.get(name) == beat}

    def state(one: Controller) -> ControllerState:
        if one.id in ended:
            return ControllerState.ENDED
        return ControllerState.SILENT if one.id in waiting else ControllerState.RUNNING

    listed = [
        ListedController(one.hostname, one.pid, state(one), one.begun_at, tuple(sorted(one.hosts))) for one in first
    ]
    every = set(services.hosts()) if has_inventory else {host for one in first for host in one.serves}
    watched = {host for one in listed if one.state is ControllerState.RUNNING for host in one.hosts}
    return sorted(listed, key=lambda one: (one.machine, one.pid)), sorted(every - watched)


def restored(services: Services) -> RestoreMark | None:
    """The mark of a restored store: it does not know who works on the one that was there before."""
    with services.store.reading() as session:
        return session.restore_mark()


def _read(services: Services) -> list[Controller]:
    with services.store.reading() as session:
        return session.controllers()
