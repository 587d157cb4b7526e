# SPDX-License-Identifier: Apache-2.0
"""Options and output that the three power-saving programs share."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.errors import PartialFailure, VgpuctlError

if TYPE_CHECKING:
    from vgpuctl.usecases.slurm.node_answers import NodeAnswer

Command = TypeVar("Command", bound=Callable[..., Any])


class JsonNodeError(TypedDict):
    """An error. reference: its stable name (docs/errors.md)."""

    reference: str
    message: str


class JsonNodeOutcome(TypedDict):
    """The result for one node. error: null where all went well."""

    node: str
    outcome: str
    error: JsonNodeError | None


NODES: JsonOutput[Sequence[JsonNodeOutcome]] = JsonOutput()


def of_cluster(function: Command) -> Command:
    """The nodes, their tenant and their cluster."""
    for option in (
        click.option(
            "--cluster", default="main", show_default=True, metavar="NAME", help="The tenant's Slurm cluster."
        ),
        options.tenant_of("The tenant the cluster belongs to."),
        click.argument("hostlist"),
    ):
        function = option(function)
    return options.database(options.as_json(function))


def report(answers: "Sequence[NodeAnswer]", *, as_json: bool) -> None:
    """Print what was done with each node as JSON; people were told.

    Raises the only error, or PartialFailure with the nodes that were refused.
    """
    if as_json:
        NODES.print([{"node": one.name, "outcome": one.outcome, "error": _error(one.error)} for one in answers])
    failed = [(one.name, one.error) for one in answers if one.error is not None]
    if len(failed) == 1 and len(answers) == 1:
        raise failed[0][1]
    if failed:
        raise PartialFailure(
            f"{len(failed)} of {len(answers)} nodes were refused",
            context=[name for name, _error in failed],
            hint=failed[0][1].hint,
        )


def _error(error: VgpuctlError | None) -> JsonNodeError | None:
    return None if error is None else {"reference": error.reference, "message": error.message}
