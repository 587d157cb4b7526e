# SPDX-License-Identifier: Apache-2.0
"""Attempts on a host that failed by the command's own settings, such as a wrong key, address or known_hosts.

They say nothing of the host, so they change nothing that was observed (observation_record.py). They are shown beside
it, and after long make a host `not-reached`. Times are the store's, in seconds since the epoch.
"""

from collections.abc import Mapping, Sequence

import msgspec

from vgpuctl import typed_json
from vgpuctl.errors import VgpuctlError
from vgpuctl.model.promise import FRESH_S
from vgpuctl.model.times import format_duration
from vgpuctl.model.way import Way
from vgpuctl.store.host_records import HostRecord
from vgpuctl.store.store import Session
from vgpuctl.usecases.observed.observation_record import NOT_REACHED, Record, Silence, answered_at, is_of_host

_KIND = "attempts"


class Attempts(msgspec.Struct, frozen=True):
    """Attempts since the last answer: the times of the first and of the last one, and the problem of the last one."""

    since: float
    at: float
    problem: str


def note_attempts(
    session: Session, host: str, record: Record, errors: Sequence[VgpuctlError], way: Way | None, asked_at: float
) -> None:
    """Record in the caller's transaction the last of these failures that is none of the host.

    record: of the host. way: how it was asked at asked_at. Nothing is kept of a host that has never answered, nor of
    an attempt that is older than an answer.
    """
    own = [error for error in errors if not is_of_host(record, error, way)]
    answer_at = answered_at(record)
    now = session.now()
    if not own or answer_at is None or asked_at < answer_at <= now:
        return
    before = attempts_on(session, host, record)
    noted = Attempts(now if before is None else before.since, now, own[-1].message)
    session.save_host_record(host, _KIND, msgspec.json.encode(noted).decode())


def attempts_by_host(session: Session, records: Mapping[str, Record]) -> dict[str, Attempts | None]:
    """The attempts on each of these hosts, by name; a host without an attempt has none or None."""
    stored = session.host_records(_KIND)
    return {one.host: _since_answer(one, records[one.host]) for one in stored if one.host in records}


def attempts_on(session: Session, host: str, record: Record) -> Attempts | None:
    """The attempts on one host. record: its record."""
    stored = session.host_record(host, _KIND)
    return None if stored is None else _since_answer(stored, record)


def _since_answer(stored: HostRecord, record: Record) -> Attempts | None:
    """The attempts after the host's last answer; None without one, or if another version of vgpuctl wrote them."""
    try:
        found = typed_json.decode(stored.content, Attempts)
    except msgspec.MsgspecError:
        return None
    answer_at = answered_at(record)
    return None if answer_at is None or found.at <= answer_at else found


def as_known(record: Record, tried: Attempts | None) -> Record:
    """The record as it is shown: a host that all attempts have missed for long is `not-reached`.

    One command with a wrong key is not enough: all attempts of FRESH_S must have failed, as those of a controller do.
    """
    if tried is None or tried.at - tried.since < FRESH_S:
        return record
    silence = Silence(tried.since, tried.problem, NOT_REACHED)
    agent = record.silence if record.read_at is None else record.silence or silence
    return msgspec.structs.replace(record, silence=agent, libvirt_silence=record.libvirt_silence or silence)


def tried_in_words(tried: Attempts | None, now: float) -> str:
    """The last attempt, as the end of a sentence: `; tried 5m ago: gpu1 refuses to log in root`."""
    return "" if tried is None else f"; tried {format_duration(max(0.0, now - tried.at))} ago: {tried.problem}"
