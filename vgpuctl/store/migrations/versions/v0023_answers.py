# SPDX-License-Identifier: Apache-2.0
"""The answers of an unattended installation are a volume of their own, which no second start of a VM has."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

_VMS = sa.table("vms", sa.column("uuid"), sa.column("request"))
_VOLUMES = sa.table("volumes", sa.column("vm_uuid"), sa.column("kind"))


def upgrade() -> None:
    """Take the seeds of VMs that were installed unattended for answers: earlier versions wrote both into one medium."""
    connection = op.get_bind()
    for uuid, request in connection.execute(sa.select(_VMS.c.uuid, _VMS.c.request)).all():
        install = json.loads(request).get("install")
        if install and install.get("unattended"):
            own = sa.and_(_VOLUMES.c.vm_uuid == uuid, _VOLUMES.c.kind == "seed")
            connection.execute(sa.update(_VOLUMES).where(own).values(kind="answers"))
