# SPDX-License-Identifier: Apache-2.0
"""Rules of the store that the database itself keeps: events are only added, and what the ledger has ended stays.

They are made again after each upgrade, since a table that a migration copies loses its triggers.
"""

from collections.abc import Iterator

from vgpuctl.model.backup import StoreKind

_EVENTS = "events are only ever added"
_LEDGER = "a row of the ledger begins open, is ended once and not before its begin, and stays then"
_NOT_IN_LEDGER = {
    "INSERT": "NEW.ended_at IS NOT NULL",
    "UPDATE": "OLD.ended_at IS NOT NULL OR NEW.ended_at < OLD.begun_at",
}


def statements(kind: StoreKind) -> Iterator[str]:
    """Make the rules in a store that has all tables, and has them already or not.

    On PostgreSQL the rights of roles keep events as they are (vgpuctl.store.database_roles), and `database_role` is the
    login of the connection, also after a SET ROLE, which would change CURRENT_USER.
    """
    if kind is StoreKind.POSTGRESQL:
        yield "ALTER TABLE events ALTER COLUMN database_role SET DEFAULT SESSION_USER"
        yield (
            "CREATE OR REPLACE FUNCTION vgpuctl_refuse_usage() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE integrity_constraint_violation USING MESSAGE = '{_LEDGER}'; END $$"
        )
        for deed, rule in _NOT_IN_LEDGER.items():
            yield f"DROP TRIGGER IF EXISTS usage_{deed.lower()} ON usage"
            yield (
                f"CREATE TRIGGER usage_{deed.lower()} BEFORE {deed} ON usage "
                f"FOR EACH ROW WHEN ({rule}) EXECUTE FUNCTION vgpuctl_refuse_usage()"
            )
        return
    triggers = {f"events_no_{deed.lower()}": (f"{deed} ON events", _EVENTS) for deed in ("UPDATE", "DELETE")}
    for deed, rule in _NOT_IN_LEDGER.items():
        triggers[f"usage_{deed.lower()}"] = (f"{deed} ON usage WHEN {rule}", _LEDGER)
    for name, (when, said) in triggers.items():
        yield f"DROP TRIGGER IF EXISTS {name}"
        yield f"CREATE TRIGGER {name} BEFORE {when} BEGIN SELECT RAISE(ABORT, '{said}'); END"
