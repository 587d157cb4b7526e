# SPDX-License-Identifier: Apache-2.0
"""The ledger keeps what has ended: the database refuses every change of such a row."""

from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

_SAID = "a row of the ledger begins open, is ended once and not before its begin, and stays then"
_RULES = {"INSERT": "NEW.ended_at IS NOT NULL", "UPDATE": "OLD.ended_at IS NOT NULL OR NEW.ended_at < OLD.begun_at"}


def upgrade() -> None:
    """Add triggers. On SQLite a later migration that copies the table `usage` has to make them again."""
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    if is_postgresql:
        op.execute(
            "CREATE OR REPLACE FUNCTION vgpuctl_refuse_usage() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE integrity_constraint_violation USING MESSAGE = '{_SAID}'; END $$"
        )
    for deed, rule in _RULES.items():
        name = f"usage_{deed.lower()}"
        if is_postgresql:
            op.execute(f"DROP TRIGGER IF EXISTS {name} ON usage")
            body = f"FOR EACH ROW WHEN ({rule}) EXECUTE FUNCTION vgpuctl_refuse_usage()"
        else:
            op.execute(f"DROP TRIGGER IF EXISTS {name}")
            body = f"WHEN {rule} BEGIN SELECT RAISE(ABORT, '{_SAID}'); END"
        op.execute(f"CREATE TRIGGER {name} BEFORE {deed} ON usage {body}")
