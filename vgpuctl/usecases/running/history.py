# SPDX-License-Identifier: Apache-2.0
"""Past readings: from the history that the exporter keeps, or from a Prometheus server."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from vgpuctl.errors import PrometheusUnusable, StoreUnusable

if TYPE_CHECKING:
    from vgpuctl.telemetry.history import Sample, Subject


_ENDING = ".history"


class Past(Protocol):
    """A source of past readings: `History` and `PrometheusServer`."""

    def series(
        self, kind: str, measure: str, *, since: float, until: float, step_s: int = 60, **where: str
    ) -> "dict[Subject, list[Sample]]":
        """The samples of one measure by subject, oldest first (telemetry/history.py)."""


@dataclass(frozen=True)
class PastSource:
    """Where past readings are. prometheus: a server's URL, which counts before the file."""

    history: Path
    prometheus: str | None = None


@dataclass(frozen=True)
class OpenedPast:
    """past: the open source. problem: why there is none, in one line."""

    past: Past | None
    problem: str | None = None


def history_path(named: Path | None, database: str | None) -> Path:
    """The file of the history: the named one, else beside the store.

    database: the store's URL, None for the default one. Raises UsageError for a URL that cannot be read.
    """
    return named.absolute() if named is not None else beside_store(database, _ENDING)


def beside_store(database: str | None, ending: str) -> Path:
    """The file of this ending beside the store's file; in the user's data folder if the store is not a file.

    Raises UsageError for a URL that cannot be read.
    """
    from vgpuctl.store.address import SqliteAddress, default_path, default_url, parse_url

    address = parse_url(database or default_url())
    store = address.path if isinstance(address, SqliteAddress) else default_path()
    return store.absolute().with_name(f"{store.name}{ending}")


def require_usable(source: PastSource) -> None:
    """Raise UsageError for a URL of Prometheus that is none. Nobody is asked."""
    if source.prometheus is not None:
        from vgpuctl.telemetry.prometheus_server import PrometheusServer

        PrometheusServer(source.prometheus)


@contextlib.contextmanager
def open_past(source: PastSource | None) -> Iterator[OpenedPast]:
    """Open past readings for reading; a source that is missing gives a problem. Raises UsageError for a bad URL."""
    if source is None:
        yield OpenedPast(None, "no history of readings was named")
        return
    if source.prometheus is not None:
        from vgpuctl.telemetry.prometheus_server import PrometheusServer

        yield OpenedPast(PrometheusServer(source.prometheus))
        return
    from vgpuctl.telemetry.history import History

    try:
        is_there = source.history.exists()
    except OSError:
        is_there = False
    if not is_there:
        yield OpenedPast(
            None, f"no history of readings: {source.history} is not there; `vgpuctl serve exporter` writes it"
        )
        return
    try:
        history = History(source.history, read_only=True)
    except StoreUnusable as error:
        yield OpenedPast(None, error.message)
        return
    with history:
        yield OpenedPast(history)


PAST_PROBLEMS = (StoreUnusable, PrometheusUnusable)
"""What a source raises when it cannot answer."""
