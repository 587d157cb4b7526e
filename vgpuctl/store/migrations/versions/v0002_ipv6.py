# SPDX-License-Identifier: Apache-2.0
"""IPv6 addresses of ports, and sources of rules that mean both IP versions.

A rule without a source was for every IPv4 address, when networks had no others; now its source is `any`.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change the store."""
    op.add_column("ports", sa.Column("address6", sa.Text))
    op.create_index("ix_ports_network_id_address6", "ports", ["network_id", "address6"], unique=True)
    op.execute(
        """UPDATE vpc_objects SET spec = replace(spec, '"source":"0.0.0.0/0"', '"source":"any"')"""
        " WHERE kind = 'security-group'"
    )
