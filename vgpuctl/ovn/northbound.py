# SPDX-License-Identifier: Apache-2.0
"""OVN's northbound database: brought to the wanted rows of some owners in one transaction, all or nothing.

Every row carries its owner and key in `external_ids`; rows of nobody and of other owners are never touched.
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, Self

from vgpuctl.byte_budget import ByteBudget
from vgpuctl.errors import OvnRefused, OvnUnreachable, UsageError
from vgpuctl.logs import timed
from vgpuctl.ovn.rows import Reference, Row
from vgpuctl.promises.witnessed import PortSeen
from vgpuctl.trusted_files import NAMED, NAMED_SECRET, judge

OWNER, KEY = "vgpuctl-owner", "vgpuctl-key"  # as in owned_rows, which is loaded with ovs
# Owners of switches on which tenants' routers have ports; see topology.external_owner.
SHARED_OWNERS = "external/"
TABLES = (
    "Logical_Switch",
    "Logical_Switch_Port",
    "Logical_Router",
    "Logical_Router_Port",
    "Logical_Router_Static_Route",
    "Logical_Router_Policy",
    "NAT",
    "Gateway_Chassis",
    "DHCP_Options",
    "Port_Group",
    "Address_Set",
    "ACL",
    "Meter",
    "Meter_Band",
    "QoS",
    "Load_Balancer",
    "Load_Balancer_Health_Check",
    "DNS",
)
_NEWER = {("DNS", "options")}
"""Columns that an older OVN lacks, which then does without them."""
_GROWN = {("Load_Balancer", "selection_fields")}
"""Columns of closed sets, of which an older OVN lacks members; it then does without those."""
_REMOTE = re.compile(r"(?P<kind>unix|tcp|ssl):(?P<rest>.+)")
_DATABASE_PORTS = {"northbound": 6641, "southbound": 6642}
_TIMEOUT_S = 30
# A network, its ports and rules have some 2 KiB in the database.
MOST_IN_SESSION = 128 * 2**20
LASTING_PER_SECOND = 2**20
"""What the database may send on top for as long as the command lasts: a controller runs for months."""


@dataclass(frozen=True)
class NorthboundAddress:
    """Where the database is: `unix:PATH`, `tcp:ADDRESS:PORT` on loopback, or `ssl:HOST:PORT` with a certificate.

    The servers of a cluster stand behind one another with commas.
    """

    remote: str
    private_key: Path | None = None
    certificate: Path | None = None
    authority: Path | None = None

    @property
    def remotes(self) -> list[str]:
        """Each server by itself."""
        return self.remote.split(",")


@dataclass(frozen=True)
class RowChange:
    """The change of one row: `created`, `changed` or `removed`."""

    owner: str
    table: str
    key: str
    word: str


class Northbound:
    """An open connection, as a context manager. rehearses: it only reads, and `apply` changes nothing."""

    def __init__(
        self,
        address: NorthboundAddress,
        *,
        timeout_s: float = _TIMEOUT_S,
        budget: ByteBudget | None = None,
        rehearses: bool = False,
    ) -> None:
        self._rehearses = rehearses
        self.address = check_address(address)
        self._timeout_s = timeout_s
        self._connection: Any = None
        self._budget = budget or ByteBudget("it", MOST_IN_SESSION, per_second=LASTING_PER_SECOND)

    def __enter__(self) -> Self:
        """Connect and read the tables. Raises OvnUnreachable."""
        from ovsdbapp.backend.ovs_idl import connection, idlutils

        from vgpuctl.ovn.bounded_streams import LONGEST_READING_S, bound, fetch_schema, lift_deadline
        from vgpuctl.ovn.owned_rows import OwnedRowsIdl

        self._use_certificates()
        hint = "check that ovn-central runs and that this machine may reach its northbound database"
        try:
            content = fetch_schema(self.address.remotes, "OVN_Northbound", timeout_s=self._timeout_s)
            schema = idlutils.create_schema_helper(content)
            for table in TABLES:
                schema.register_table(table)
            bound(self.address.remotes, self._budget, within_s=LONGEST_READING_S)
            rows = OwnedRowsIdl(self.address.remote, schema, leader_only=False)
            rows.budget = self._budget
            self._connection = connection.Connection(rows, timeout=self._timeout_s)
            self._connection.start()
            lift_deadline(self.address.remotes)
        except Exception as failure:
            raise OvnUnreachable(
                f"OVN's northbound database {self.address.remote} does not answer: {self._why(failure)}", hint=hint
            ) from failure
        return self

    def _why(self, failure: Exception) -> str:
        """The reason of a failure in words: the bound that was passed, or what the library says."""
        if self._budget.refusal is not None:
            return f"{self._budget.refusal} in one session; its connection was closed"
        said = failure.strerror if isinstance(failure, OSError) and failure.strerror else str(failure)
        return said or type(failure).__name__

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.stop(timeout=self._timeout_s)

    def apply(self, wanted: Mapping[str, Sequence[Row]], *, dry_run: bool = False) -> list[RowChange]:
        """Make the rows of each owner exactly these. Returns what was done, nothing when all was so.

        One transaction: all owners or none. Raises OvnRefused with the database's answer.
        """
        from ovsdbapp.backend.ovs_idl import transaction

        dry_run = dry_run or self._rehearses
        command = _Reconcile(self._connection.idl, wanted, dry_run=dry_run)
        changes = transaction.Transaction(
            SimpleNamespace(idl=self._connection.idl),
            self._connection,
            timeout=self._timeout_s,
            check_error=True,
            log_errors=False,
        )
        changes.add(command)
        try:
            with timed("ovn-apply", database=self.address.remote, dry_run=dry_run or None):
                changes.commit()
        except Exception as failure:
            raise OvnRefused(
                f"OVN's northbound database {self.address.remote} did not take the change: {self._why(failure)}",
                hint="nothing was changed there; `vgpuctl repair` tries again",
            ) from failure
        return command.changes

    def knows(self, table: str, column: str, value: str) -> bool:
        """True if a column of a closed set may hold the value in this OVN."""
        with self._connection.lock:
            return value in _members(self._connection.idl.tables[table].columns[column])

    def owners(self) -> set[str]:
        """Every owner that has rows."""
        with self._connection.lock:
            return set(self._connection.idl.owned)

    def ports(self, owner: str) -> dict[str, PortSeen]:
        """Every port of an owner's VMs by its name, as the database has it now."""
        with self._connection.lock:
            rows = dict(self._connection.idl.owned.get(owner, {}))
            limits = {
                key.split("/")[1]: row.bandwidth.get("rate", 0) // 1000
                for (_owner, table, key), row in rows.items()
                if table == "QoS" and key.startswith("limit/")
            }
            return {
                row.name: PortSeen(row.up == [True], frozenset(row.addresses), limits.get(row.name))
                for (_owner, table, key), row in rows.items()
                if table == "Logical_Switch_Port" and key.startswith("port/")
            }

    def uuids(self, owner: str, table: str) -> dict[str, str]:
        """The UUID of each row that an owner has in a table, by the row's key."""
        with self._connection.lock:
            rows = dict(self._connection.idl.owned.get(owner, {}))
            return {key: str(row.uuid) for (_owner, its, key), row in rows.items() if its == table}

    def _use_certificates(self) -> None:
        if not any(one.startswith("ssl:") for one in self.address.remotes):
            return
        from ovs.stream import Stream

        assert self.address.private_key and self.address.certificate and self.address.authority
        # The library opens them again by name with every connection.
        judge(self.address.private_key, NAMED_SECRET)
        judge(self.address.certificate, NAMED)
        judge(self.address.authority, NAMED)
        Stream.ssl_set_private_key_file(str(self.address.private_key))
        Stream.ssl_set_certificate_file(str(self.address.certificate))
        Stream.ssl_set_ca_cert_file(str(self.address.authority))


def check_address(address: NorthboundAddress, *, database: str = "northbound") -> NorthboundAddress:
    """Accept an address that nobody on the way can listen to or write to. Raises UsageError."""
    for one in address.remotes:
        _check_remote(replace(address, remote=one), database)
    return address


def _check_remote(address: NorthboundAddress, database: str) -> None:
    match = _REMOTE.fullmatch(address.remote)
    if match is None:
        port = _DATABASE_PORTS[database]
        raise UsageError(
            f"OVN's {database} database cannot be at {address.remote!a}",
            hint=f"write unix:PATH, tcp:127.0.0.1:{port} or ssl:HOST:{port}",
        )
    if match["kind"] == "tcp" and not _is_loopback(match["rest"].rpartition(":")[0]):
        raise UsageError(
            f"OVN's {database} database at {address.remote} is refused: plain TCP on a routable address",
            hint="use ssl:HOST:PORT with a certificate, or a socket",
        )
    if match["kind"] == "ssl" and None in (address.private_key, address.certificate, address.authority):
        raise UsageError(
            f"OVN's {database} database at {address.remote} needs a private key, a certificate and an authority",
            hint="set VGPUCTL_OVN_KEY, VGPUCTL_OVN_CERTIFICATE and VGPUCTL_OVN_AUTHORITY",
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class _Reconcile:
    """One command of an ovsdbapp transaction, run again when the database changed meanwhile."""

    def __init__(self, idl: Any, wanted: Mapping[str, Sequence[Row]], *, dry_run: bool) -> None:
        self._idl = idl
        self._wanted = wanted
        self._dry_run = dry_run
        self.changes: list[RowChange] = []
        self.result = None

    def run_idl(self, transaction: Any) -> None:
        """Compare, then write the difference."""
        self.changes = []
        there = self._read_owned()
        changed: dict[tuple[str, str, str], str] = {}
        made = dict(there)
        for owner, rows in self._wanted.items():
            for row in rows:
                place = (owner, row.table, row.key)
                if place not in made:
                    changed[place] = "created"
                    if not self._dry_run:
                        made[place] = transaction.insert(self._idl.tables[row.table])
                        made[place].external_ids = {OWNER: owner, KEY: row.key}
                if place in made and self._set_columns(made[place], row.columns):
                    changed.setdefault(place, "changed")
        for owner, rows in self._wanted.items():
            for row in rows:
                if self._set_references(owner, row, made, is_new=(owner, row.table, row.key) not in there):
                    changed.setdefault((owner, row.table, row.key), "changed")
        wanted = {(owner, row.table, row.key) for owner, rows in self._wanted.items() for row in rows}
        stale = {place: row for place, row in there.items() if place[0] in self._wanted and place not in wanted}
        staying = {place: row for place, row in there.items() if place not in stale}
        for place, old in stale.items():
            changed[place] = "removed"
            if not self._dry_run:
                self._remove(place, old, staying)
        self.changes = [RowChange(*place, word) for place, word in sorted(changed.items())]

    def post_commit(self, _transaction: Any) -> None:
        """Nothing is left to do; ovsdbapp asks every command."""

    def _read_owned(self) -> dict[tuple[str, str, str], Any]:
        """Rows of the wanted owners, and of others that they share a switch with."""
        parents = {row.parent.owner for rows in self._wanted.values() for row in rows if row.parent is not None}
        shared = {owner for owner in self._idl.owned if owner.startswith(SHARED_OWNERS)}
        found = {}
        for owner in {*self._wanted, *parents, *shared}:
            found.update(self._idl.owned.get(owner, {}))
        return found

    def _set_columns(self, row: Any, columns: Mapping[str, object]) -> bool:
        changed = False
        for column, value in columns.items():
            if (row._table.name, column) in _NEWER and column not in row._table.columns:
                continue
            wanted = sorted(value) if isinstance(value, list | tuple) else value
            if (row._table.name, column) in _GROWN and isinstance(wanted, list):
                wanted = [one for one in wanted if one in _members(row._table.columns[column])]
            current = getattr(row, column, None)
            if (sorted(current) if isinstance(current, list) else current) != wanted:
                changed = True
                if not self._dry_run:
                    setattr(row, column, wanted)
        return changed

    def _set_references(self, owner: str, row: Row, made: Mapping[tuple[str, str, str], Any], *, is_new: bool) -> bool:
        own: Any = made.get((owner, row.table, row.key))
        changed = False
        for column, references in row.references.items():
            places = [_place(reference, owner) for reference in references]
            if own is None or any(place not in made for place in places):
                changed = True  # something of it is new, and this is a dry run
                continue
            wanted = [made[place] for place in places]
            current = [] if is_new else getattr(own, column)
            if {one.uuid for one in current} != {one.uuid for one in wanted}:
                changed = True
                if not self._dry_run:
                    setattr(own, column, wanted)
        if row.parent is not None and not self._dry_run:
            parent = made.get(_place(row.parent, owner))
            if parent is None:
                raise OvnRefused(f"{row.parent.key} of {row.parent.owner} is not there yet")
            if is_new or own.uuid not in {one.uuid for one in getattr(parent, row.parent_column)}:
                changed = True
                parent.addvalue(row.parent_column, own)
        return changed

    def _remove(self, place: tuple[str, str, str], row: Any, staying: Mapping[tuple[str, str, str], Any]) -> None:
        owner, table, _key = place
        if table == "Logical_Switch_Port":
            for (other, other_table, _), switch in staying.items():
                is_shared = other_table == "Logical_Switch" and other != owner
                if is_shared and row.uuid in {port.uuid for port in switch.ports}:
                    switch.delvalue("ports", row)
        row.delete()


def _members(column: Any) -> set[str]:
    """The members of a column that is a closed set."""
    return {atom.value for atom in column.type.key.enum.values}


def _place(reference: Reference, owner: str) -> tuple[str, str, str]:
    return (reference.owner or owner, reference.table, reference.key)
