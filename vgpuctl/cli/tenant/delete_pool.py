# SPDX-License-Identifier: Apache-2.0
"""delete-pool: its hosts serve every tenant again."""

from functools import partial
from typing import Any

import click

from vgpuctl.cli.support.deletion import delete_one, deletion_options


@click.command("delete-pool")
@deletion_options
def command(name: str, **how: Any) -> None:
    """Delete a pool and its grants; its hosts then serve every tenant, and VMs stay where they are."""
    from vgpuctl.usecases.tenant.delete_pool import delete_pool

    delete_one(
        partial(delete_pool, name=name),
        question=f"Delete pool {name} and open its hosts to every tenant?",
        told=lambda pool: f"pool {name}: deleted, {', '.join(pool.hosts)} serve every tenant",
        **how,
    )
