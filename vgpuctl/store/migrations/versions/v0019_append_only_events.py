# SPDX-License-Identifier: Apache-2.0
"""Events are only ever added, and the database says which role added them."""

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """PostgreSQL fills `database_role`; SQLite refuses to change and to delete events.

    SESSION_USER is the login of the connection, also after a SET ROLE, which would change CURRENT_USER. On PostgreSQL
    the rights of roles keep events as they are (vgpuctl.store.database_roles). On SQLite a later migration that copies
    the table `events` has to make the triggers again.
    """
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE events ALTER COLUMN database_role SET DEFAULT SESSION_USER")
        return
    for deed in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER events_no_{deed.lower()} BEFORE {deed} ON events "
            "BEGIN SELECT RAISE(ABORT, 'events are only ever added'); END"
        )
