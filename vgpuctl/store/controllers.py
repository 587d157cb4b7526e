# SPDX-License-Identifier: Apache-2.0
"""Controllers and the hosts that each of them has claimed.

A controller lives while its `beat` goes on. A controller that waits for the beat of another one measures with
a clock of its own that never jumps. So neither the time of the store nor that of another machine says who is dead.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from vgpuctl import typed_json
from vgpuctl.store import codec
from vgpuctl.store.liveness import this_process
from vgpuctl.store.rows import Rows


@dataclass(frozen=True)
class Controller:
    """One controller and its process.

    beat: rises while it lives. serves: the hosts that it may claim. hosts: those that it has claimed.
    """

    id: str
    pid: int
    hostname: str
    machine: str
    process_start: str
    beat: int
    begun_at: float
    serves: frozenset[str]
    hosts: frozenset[str] = frozenset()


class ControllerRows(Rows):
    """Register controllers, count their beats, claim hosts and give them up."""

    def beat_controller(self, name: str, serves: Collection[str]) -> None:
        """Count a beat of this process as a controller; register it first where others have taken it for dead."""
        text = codec.encode(sorted(serves))
        counted = "UPDATE controllers SET beat = beat + 1, serves = :serves WHERE id = :id"
        if self._write(counted, id=name, serves=text).changed == 1:
            return
        process = this_process()
        values: dict[str, Any] = {
            "pid": process.pid,
            "hostname": process.hostname,
            "machine": process.machine,
            "serves": text,
        }
        self._put("controllers", {"id": name}, **values, process_start=process.start, beat=0, begun_at=self._clock())

    def end_controller(self, name: str) -> None:
        """Remove a controller with its claims."""
        self._delete("host_claims", controller=name)
        self._delete("controllers", id=name)

    def controllers(self) -> list[Controller]:
        """Every controller, by id."""
        claims: dict[str, set[str]] = {}
        for row in self._find("host_claims"):
            claims.setdefault(row.controller, set()).add(row.host)
        rows = self._find("controllers", order="id")
        return [
            Controller(
                **{**vars(row), "serves": frozenset(typed_json.decode(row.serves, list[str]))},
                hosts=frozenset(claims.get(row.id, ())),
            )
            for row in rows
        ]

    def claim_hosts(self, name: str, hosts: Collection[str]) -> None:
        """Claim hosts that nobody has claimed."""
        for host in sorted(hosts):
            self._insert_if_absent("host_claims", host=host, controller=name)

    def give_up_hosts(self, name: str, hosts: Collection[str]) -> None:
        """Give up some of a controller's hosts."""
        self._delete("host_claims", controller=name, host=sorted(hosts))
