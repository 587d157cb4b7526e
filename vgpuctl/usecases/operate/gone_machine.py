# SPDX-License-Identifier: Apache-2.0
"""repair --gone: end what the processes of a machine had open that an operator says is gone for good.

Nobody can ask another machine if a process lives (store/liveness.py), so its operations block for ever. A controller
tells that it lives by its beat; of commands only the operator knows.
"""

import time
from collections.abc import Sequence

from vgpuctl.errors import NotFound, StateError, UsageError
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.times import format_time
from vgpuctl.store.liveness import Process, is_running, this_process
from vgpuctl.store.records import Operation
from vgpuctl.usecases.operate.division import BEAT_S, DEAD_AFTER_S
from vgpuctl.usecases.running.services import Services

_PAUSE_S = 0.5


def end_gone(
    services: Services, machine: str, *, dry_run: bool, wait_s: float | None = None
) -> Sequence[tuple[str, str]]:
    """End the operations of a machine, and its controllers. Returns each with what was found.

    Work that they left half done is then for `repair`, as after a killed run of this machine. wait_s: how long to wait
    for a beat of a controller of that machine; without it 30 s where one is known, and else as long as two beats take.
    Raises UsageError for this machine, NotFound where nothing of the machine is open, and StateError while a controller
    of it lives, or where a command of it has begun meanwhile.
    """
    with services.store.reading() as session:
        session.require_reconciled()
        operations = _of(session.open_operations(), machine)
        controllers = [one for one in session.controllers() if _is_of(one, machine)]
        every: list[Process] = [*session.open_operations(), *session.controllers()]
    if not operations and not controllers:
        if machine == this_process().hostname:
            raise UsageError(
                f"{machine} is this machine, on which `vgpuctl repair` knows itself which processes have ended",
                hint="leave --gone out",
            )
        known = sorted({one.hostname for one in every if is_running(one) is None})
        raise NotFound(
            f"no process of a machine {machine} has anything open in the store",
            hint=f"machines with open work: {', '.join(known) or 'none'}; `vgpuctl list-controllers` shows controllers",
        )
    if wait_s is None:
        wait_s = DEAD_AFTER_S if controllers else 2 * BEAT_S
    _refuse_living(services, machine, {one.id: one.beat for one in controllers}, wait_s)
    if not dry_run:
        with services.store.transaction() as session:
            now = _of(session.open_operations(), machine)
            if {one.id for one in now} != {one.id for one in operations}:
                raise StateError(
                    f"a process of {machine} is at work: what it has open changed within {wait_s:g} s",
                    hint=f"{machine} is not gone; wait for its commands to end",
                )
            session.take_over_operations([one.id for one in operations])
            for one in controllers:
                session.end_controller(one.id)
            session.add_event(
                EventKind.MACHINE_GONE,
                machine,
                before={"open": [_words(one) for one in operations], "controllers": len(controllers)},
                after={"open": [], "controllers": 0},
            )
    return [(one.detail or one.subject, f"{_words(one)} of {machine}, which is gone") for one in operations]


def _of(operations: Sequence[Operation], machine: str) -> list[Operation]:
    return [one for one in operations if _is_of(one, machine)]


def _is_of(process: Process, machine: str) -> bool:
    """True for a process of another machine of that name. This one may have the name too: it was installed again."""
    return process.hostname == machine and is_running(process) is None


def _words(one: Operation) -> str:
    return f"{one.kind} of {one.detail or one.subject}, begun {format_time(one.begun_at)} UTC by process {one.pid}"


def _refuse_living(services: Services, machine: str, beats: dict[str, int], wait_s: float) -> None:
    """Raise StateError once a controller of the machine counts a beat, or registers again after others buried it.

    beats: of those that are known, by the controller's id.
    """
    services.say(f"waiting {wait_s:g} s for a beat of a controller of {machine}")
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        time.sleep(min(_PAUSE_S, wait_s))
        with services.store.reading() as session:
            for one in session.controllers():
                if _is_of(one, machine) and one.beat != beats.get(one.id):
                    raise StateError(
                        f"the controller of {machine} (process {one.pid}) is alive: it has just counted a beat",
                        hint=f"nothing of {machine} is ended; stop that controller first if it is to end",
                    )
