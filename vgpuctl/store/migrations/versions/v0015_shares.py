# SPDX-License-Identifier: Apache-2.0
"""Columns, quota resources, host records and reservations say `share` for the part of a GPU that a VM holds."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Rename the columns, and replace `slices` in the rows that hold it. Events keep their words."""
    op.alter_column("leases", "slice", new_column_name="share")
    op.alter_column("leases", "slice_version", new_column_name="share_version")
    op.execute("UPDATE host_records SET kind = 'layout-shares' WHERE kind = 'layout-slices'")
    for table in ("quotas", "reclaims"):
        op.execute(f"UPDATE {table} SET resource = replace(resource, 'slices:', 'shares:')")
    connection = op.get_bind()
    rows = sa.table("reservations", sa.column("tenant"), sa.column("name"), sa.column("content"))
    for tenant, name, text in connection.execute(sa.select(rows.c.tenant, rows.c.name, rows.c.content)).all():
        content = json.loads(text)
        content["shares"] = content.pop("slices")
        is_this = (rows.c.tenant == tenant, rows.c.name == name)
        connection.execute(rows.update().where(*is_this).values(content=json.dumps(content)))
