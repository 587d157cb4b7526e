# SPDX-License-Identifier: Apache-2.0
"""The catalogue of images. Paths and volumes in older requests are marked, so that none is taken for a name in it."""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_UNREGISTERED = "unregistered:"


def upgrade() -> None:
    """Add the tables and mark the requests of VMs and of the queue."""
    op.create_table(
        "images",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("format", sa.Text, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("path", sa.Text),
        sa.Column("pool", sa.Text),
        sa.Column("volume", sa.Text),
        sa.Column("os", sa.Text),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_images"),
    )
    op.create_table(
        "image_copies",
        sa.Column("image", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("real_path", sa.Text, nullable=False),
        sa.Column("size_bytes", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("device", sa.Text, nullable=False),
        sa.Column("inode", sa.Text, nullable=False),
        sa.Column("changed_ns", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("verified_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("image", "host", name="pk_image_copies"),
        sa.ForeignKeyConstraint(["image"], ["images.name"], name="fk_image_copies_image_images"),
    )
    connection = op.get_bind()
    for table, key in (("vms", "uuid"), ("queue", "id")):
        rows = sa.table(table, sa.column(key), sa.column("request"))
        for identity, text in connection.execute(sa.select(rows.c[key], rows.c.request)).all():
            request = json.loads(text)
            for one in request if isinstance(request, list) else [request]:
                _mark(one)
            connection.execute(rows.update().where(rows.c[key] == identity).values(request=json.dumps(request)))


def _mark(request: dict[str, Any]) -> None:
    for part, fields in (("disk", ("base_image",)), ("direct_kernel", ("kernel", "initrd"))):
        given = request.get(part) or {}
        for field in fields:
            if given.get(field) is not None:
                given[field] = _UNREGISTERED + given[field]
