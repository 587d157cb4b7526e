# SPDX-License-Identifier: Apache-2.0
"""The cache of hosts' facts, and each host's generation: the counter of changes to its leases."""

from typing import TYPE_CHECKING

from vgpuctl.errors import ConcurrentChange
from vgpuctl.store import codec
from vgpuctl.store.database import Row
from vgpuctl.store.records import CachedFacts
from vgpuctl.store.rows import Rows

if TYPE_CHECKING:
    from vgpuctl.agent.wire.facts import HostFacts

_USABLE_FACTS = "SELECT * FROM hosts WHERE facts IS NOT NULL AND facts_shape = :shape"


class HostRows(Rows):
    """Keep and hand out facts, count generations."""

    def save_facts(self, host: str, facts: "HostFacts", at: float) -> None:
        """Keep what was read from a host at `at` (seconds since the epoch, UTC).

        The last one to save wins; `at` is only shown, since hosts' clocks can be wrong.
        """
        shape = codec.facts_shape()
        self._put(
            "hosts", {"name": host}, new={"generation": 0}, facts=codec.encode(facts), facts_shape=shape, read_at=at
        )

    def facts(self, host: str) -> CachedFacts | None:
        """Cached facts of one host; None when there are none that this version of vgpuctl can use."""
        for row in self._read(f"{_USABLE_FACTS} AND name = :name", shape=codec.facts_shape(), name=host):
            return self._cached(row)
        return None

    def forget_facts(self, host: str) -> None:
        """Drop what was read of a host; the count of its changes goes on."""
        self._update("hosts", {"name": host}, facts=None, facts_shape=None, read_at=None)

    def all_facts(self) -> dict[str, CachedFacts]:
        """Cached facts of every host that has some, by host name, in one query."""
        found = (self._cached(row) for row in self._read(_USABLE_FACTS, shape=codec.facts_shape()))
        return {cached.host: cached for cached in sorted(found, key=lambda cached: cached.host)}

    def generation(self, host: str) -> int:
        """The counter of changes to a host's leases; 0 for a host never seen."""
        for row in self._read("SELECT generation FROM hosts WHERE name = :name", name=host):
            return int(row.generation)
        return 0

    def bump_generation(self, host: str, seen: int) -> int:
        """Count a change to the host's leases, if nobody did since `seen` was read. Returns the new generation.

        Raises ConcurrentChange when somebody did: what was decided from the old sight must be decided again.
        """
        is_same = self._update("hosts", {"name": host, "generation": seen}, generation=seen + 1) == 1
        if not is_same and not (seen == 0 and self._insert_if_absent("hosts", name=host, generation=1)):
            raise ConcurrentChange(
                f"another run changed the leases of host {host} since they were read",
                hint="run the same command again; it reads the store again",
            )
        return seen + 1

    def _count_change(self, host: str) -> None:
        """Count a change to the host's leases, whatever was seen."""
        if not self._insert_if_absent("hosts", name=host, generation=1):
            self._write("UPDATE hosts SET generation = generation + 1 WHERE name = :name", name=host)

    def _cached(self, row: Row) -> CachedFacts:
        return CachedFacts(row.name, row.read_at, row.generation, row.facts, self._facts_reader)
