# SPDX-License-Identifier: Apache-2.0
"""Requests keep where a VM is placed as `constraints`, and hosts keep stopped services and VMs as pending restarts."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Rename the field `wishes` in every request, of VMs and of the queue, and the kind of the host records."""
    op.execute("UPDATE host_records SET kind = 'pending-restarts' WHERE kind = 'layout-debts'")
    connection = op.get_bind()
    for table, key in (("vms", "uuid"), ("queue", "id")):
        rows = sa.table(table, sa.column(key), sa.column("request"))
        for identity, text in connection.execute(sa.select(rows.c[key], rows.c.request)).all():
            found = json.loads(text)
            for request in found if isinstance(found, list) else [found]:
                if "wishes" in request:
                    request["constraints"] = request.pop("wishes")
            connection.execute(rows.update().where(rows.c[key] == identity).values(request=json.dumps(found)))
