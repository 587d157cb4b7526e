# SPDX-License-Identifier: Apache-2.0
"""How quotas are written on a command line."""

from collections.abc import Sequence

import click

from vgpuctl.errors import UsageError

UNITS = (
    "vms, vcpus, memory (8GiB), cards (whole cards), framebuffer (96GiB), mig-compute (MIG compute slices), "
    "compute (compute time of whole GPUs: 2.5), gpu-hours (per calendar month), shares:PROFILE, disk (100GiB), "
    "snapshots (100GiB), nics, networks, public-addresses, load-balancers, vpn-connections, each:WHAT, default:WHAT "
    "and over-promise (docs/scheduling.md)"
)

guaranteed = click.option(
    "--guaranteed",
    multiple=True,
    metavar="RESOURCE=AMOUNT",
    help="Guaranteed amount of a resource; use above it is borrowed. `none` removes it; several times.",
)


def read_amounts(written: Sequence[str], *, what: str) -> dict[str, int | None]:
    """RESOURCE=AMOUNT values as a mapping. Raises UsageError for a bad one, and for a resource named twice."""
    from vgpuctl.quota.resources import parse_assignment

    amounts: dict[str, int | None] = {}
    for text in written:
        resource, amount = parse_assignment(text, what=what)
        if resource in amounts:
            raise UsageError(f"{what} names {resource} twice")
        amounts[resource] = amount
    return amounts
