# SPDX-License-Identifier: Apache-2.0
"""Secret documents leave the store: VMs keep a digest of them, and queued VMs the encrypted content."""

import hashlib
import json
from typing import Any

import sqlalchemy as sa
from alembic import context, op

from vgpuctl.store.sealed import KeyFile

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_DOCUMENTS = ("user_data", "network_config")
_START_AGAIN = ("start", "start-gang")


def upgrade() -> None:
    """Replace the documents of every request by their digests; those of VMs still to be made are sealed first."""
    op.add_column("queue", sa.Column("secrets", sa.Text))
    connection = op.get_bind()
    vms = sa.table("vms", sa.column("uuid"), sa.column("request"))
    for uuid, text in connection.execute(sa.select(vms.c.uuid, vms.c.request)).all():
        request = json.loads(text)
        _take_documents(request)
        connection.execute(vms.update().where(vms.c.uuid == uuid).values(request=json.dumps(request)))
    queue = sa.table("queue", sa.column("id"), sa.column("kind"), sa.column("request"), sa.column("secrets"))
    for identity, kind, text in connection.execute(sa.select(queue.c.id, queue.c.kind, queue.c.request)).all():
        found = json.loads(text)
        requests = found if isinstance(found, list) else [found]
        texts = {request["name"]: taken for request in requests if (taken := _take_documents(request))}
        secrets = _key_file().seal(texts) if texts and kind not in _START_AGAIN else None
        changed = queue.update().where(queue.c.id == identity)
        connection.execute(changed.values(request=json.dumps(found), secrets=secrets))


def _take_documents(request: dict[str, Any]) -> dict[str, str]:
    """Replace the documents of one request by digests. Returns them."""
    cloud_init = request.get("cloud_init") or {}
    taken = {}
    for field in _DOCUMENTS:
        text = cloud_init.get(field)
        if isinstance(text, str):
            taken[field] = text
            digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
            cloud_init[field] = {"digest": f"sha256:{digest}"}
    if cloud_init.pop("licence_token_file", None) is not None:
        cloud_init["licence_token"] = {"digest": "unknown"}
    return taken


def _key_file() -> KeyFile:
    key_file: KeyFile = context.config.attributes["key_file"]
    return key_file
