# SPDX-License-Identifier: Apache-2.0
"""alembic's entry: runs the migrations on the connection and in the transaction of vgpuctl.store.upgrade."""

from alembic import context

from vgpuctl.store.schema import VERSION_TABLE
from vgpuctl.store.tables import complete_metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=complete_metadata(),
    version_table=VERSION_TABLE,
    render_as_batch=True,
    transactional_ddl=True,
)
context.run_migrations()
