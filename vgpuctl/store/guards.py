# SPDX-License-Identifier: Apache-2.0
"""Rules of the store that the database itself keeps: events are only added, what the ledger has ended stays, and what
was counted of traffic only grows.

They are made again after each upgrade, since a table that a migration copies loses its triggers.
"""

from collections.abc import Iterator

from vgpuctl.model.backup import StoreKind

_EVENTS = "events are only ever added"
_LEDGER = "a row of the ledger begins open, is ended once and not before its begin, and stays then"
_TRAFFIC = "a row of traffic only grows"
_REFUSED = {
    "usage": (
        _LEDGER,
        {
            "INSERT": "NEW.ended_at IS NOT NULL",
            "UPDATE": "OLD.ended_at IS NOT NULL OR NEW.ended_at < OLD.begun_at",
        },
    ),
    "traffic": (
        _TRAFFIC,
        {
            "UPDATE": "NEW.received_bytes < OLD.received_bytes OR NEW.sent_bytes < OLD.sent_bytes"
            " OR NEW.received_packets < OLD.received_packets OR NEW.sent_packets < OLD.sent_packets",
        },
    ),
}
"""What each ledger refuses: the reason, and the condition of each deed."""


def statements(kind: StoreKind) -> Iterator[str]:
    """Make the rules in a store that has all tables, and has them already or not.

    On PostgreSQL the rights of roles keep events as they are (vgpuctl.store.database_roles), and `database_role` is the
    login of the connection, also after a SET ROLE, which would change CURRENT_USER.
    """
    if kind is StoreKind.POSTGRESQL:
        yield "ALTER TABLE events ALTER COLUMN database_role SET DEFAULT SESSION_USER"
        for table, (said, rules) in _REFUSED.items():
            yield (
                f"CREATE OR REPLACE FUNCTION vgpuctl_refuse_{table}() RETURNS trigger LANGUAGE plpgsql AS "
                f"$$ BEGIN RAISE integrity_constraint_violation USING MESSAGE = '{said}'; END $$"
            )
            for deed, rule in rules.items():
                yield f"DROP TRIGGER IF EXISTS {table}_{deed.lower()} ON {table}"
                yield (
                    f"CREATE TRIGGER {table}_{deed.lower()} BEFORE {deed} ON {table} "
                    f"FOR EACH ROW WHEN ({rule}) EXECUTE FUNCTION vgpuctl_refuse_{table}()"
                )
        return
    triggers = {f"events_no_{deed.lower()}": (f"{deed} ON events", _EVENTS) for deed in ("UPDATE", "DELETE")}
    for table, (said, rules) in _REFUSED.items():
        for deed, rule in rules.items():
            triggers[f"{table}_{deed.lower()}"] = (f"{deed} ON {table} WHEN {rule}", said)
    for name, (when, said) in triggers.items():
        yield f"DROP TRIGGER IF EXISTS {name}"
        yield f"CREATE TRIGGER {name} BEFORE {when} BEGIN SELECT RAISE(ABORT, '{said}'); END"
