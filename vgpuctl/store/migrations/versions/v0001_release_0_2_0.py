# SPDX-License-Identifier: Apache-2.0
"""The schema of vgpuctl 0.2.0, the first that was released: where every upgrade begins.

It has nothing to do: a new store is made from the tables as they are (vgpuctl.store.upgrade).
"""

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing was released before."""
