# SPDX-License-Identifier: Apache-2.0
"""The check that the machine which answers is the host that was asked: every reading and every change passes it.

SSH's host keys belong to addresses. They do not tell when the inventory swaps two addresses, or when cloned machines
have the same key; the marks of each host's last reading do (model/host_identity.py).
"""

import msgspec

from vgpuctl import typed_json
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.health import HostHealth
from vgpuctl.agent.wire.readings import HostReadings
from vgpuctl.errors import StoreNotTheSame, StoreUnusable, WrongHost
from vgpuctl.model.host_identity import Marks, boot_mark, find_other, name_mark
from vgpuctl.store.store import Session
from vgpuctl.usecases.running.services import Services

_KIND = "identity"


def refuse_other_host(services: Services, host: str, answer: HostFacts | HostHealth | HostReadings) -> None:
    """Raise WrongHost when another host's agent answered. Nothing is checked where the store cannot be read.

    A host that answers for the first time is recorded at once: of two names of one machine that are read side by side,
    one is refused.
    """
    if not isinstance(answer, HostFacts):
        _refuse(services, host, frozenset([boot_mark(answer.boot_id)]))
        return
    seen = marks_of(answer)
    _refuse(services, host, seen)
    try:
        store = services.open_store()
        with store.reading() as session:
            is_known = store.read_only_reason is not None or _read(session, host) is not None
        if not is_known:
            with store.transaction() as session:
                _refuse_within(session, services, host, seen)
                note_identity(session, host, answer)
    except StoreNotTheSame:
        raise
    except StoreUnusable:
        return


def refuse_other_libvirt(services: Services, host: str, hostname: str) -> None:
    """Raise WrongHost when another host's libvirt answered, which knows only the machine's name."""
    _refuse(services, host, frozenset([name_mark(hostname)]))


def note_identity(session: Session, host: str, facts: HostFacts) -> None:
    """Record in the caller's transaction by what this host is known."""
    marks = marks_of(facts)
    if marks != _read(session, host):
        session.save_host_record(host, _KIND, msgspec.json.encode(sorted(marks)).decode())


def marks_of(facts: HostFacts) -> Marks:
    """The marks of a machine."""
    marks = {boot_mark(facts.boot_id)}
    if facts.hostname:
        marks.add(name_mark(facts.hostname))
    if facts.machine_id is not None:
        marks.add(f"machine-id:{facts.machine_id}")
    return frozenset(marks | {f"gpu:{gpu.uuid}" for gpu in facts.gpus if gpu.uuid is not None})


def _refuse(services: Services, host: str, seen: Marks) -> None:
    try:
        with services.open_store().reading() as session:
            _refuse_within(session, services, host, seen)
    except StoreNotTheSame:
        raise
    except StoreUnusable:
        return


def _refuse_within(session: Session, services: Services, host: str, seen: Marks) -> None:
    if seen <= (_read(session, host) or frozenset()):
        return
    inventory = set(services.inventory.select(None))
    known = {one.host: _decode(one.content) for one in session.host_records(_KIND) if one.host in inventory}
    other = find_other(host, seen, known)
    if other is not None:
        raise WrongHost(
            f"{host}: the machine that answers is {other}: {', '.join(sorted(seen & known[other]))}",
            hint=f"correct the address of {host} or {other} in the inventory, or what leads there;"
            f" if the machines are right and were changed, run `vgpuctl inspect-host {other}` first",
        )


def _read(session: Session, host: str) -> Marks | None:
    record = session.host_record(host, _KIND)
    return None if record is None else _decode(record.content)


def _decode(content: str) -> Marks:
    marks: list[str] = typed_json.decode(content, list[str])
    return frozenset(marks)
