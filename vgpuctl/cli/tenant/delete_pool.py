# SPDX-License-Identifier: Apache-2.0
"""delete-pool: its hosts serve every tenant again."""

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.support.deletion import JsonDeletion, delete_one, deletion_options
from vgpuctl.cli.support.json_output import JsonOutput

if TYPE_CHECKING:
    from vgpuctl.quota.pools import Pool


_JSON: "JsonOutput[JsonDeletion[Pool]]" = JsonOutput()


@click.command("delete-pool")
@deletion_options
def command(name: str, **how: Any) -> None:
    """Delete a pool and its grants; its hosts then serve every tenant, and VMs stay where they are."""
    from vgpuctl.usecases.tenant.delete_pool import delete_pool

    delete_one(
        partial(delete_pool, name=name),
        question=f"Delete pool {name} and open its hosts to every tenant?",
        told=lambda pool: f"pool {name}: deleted, {', '.join(pool.hosts)} serve every tenant",
        output=_JSON,
        **how,
    )
