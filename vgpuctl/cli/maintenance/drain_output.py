# SPDX-License-Identifier: Apache-2.0
"""The table of drain-host and evacuate-host, and how they end."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vgpuctl.cli.shown.output import print_table
from vgpuctl.errors import PartialFailure
from vgpuctl.model.plural import counted

if TYPE_CHECKING:
    from vgpuctl.usecases.maintenance.drain_host import Drained


def print_drained(host: str, rows: "Sequence[Drained]", *, as_json: bool, hint: str, empty: str = "") -> None:
    """Print the table unless JSON was printed. Raises PartialFailure, with this hint, for objects that are left."""
    if not as_json:
        print_table(
            ["SUBJECT", "VERDICT", "MOVE", "HALT", "TO", "STORAGE", "OUTCOME", "REASON"],
            [
                (one.subject, one.verdict, one.way, halt(one), one.to, one.storage, one.outcome, reason_of(one))
                for one in rows
            ],
            empty=empty or f"{host} has no VM and no reservation",
            drops={"STORAGE": 0, "HALT": 1},
        )
    _refuse_rest(host, rows, hint)


def line_of(one: "Drained") -> str:
    """What becomes of it, as a line before a question."""
    return " ".join(filter(None, (f"{one.subject}:", one.verdict, one.way, one.to, halt(one), reason_of(one))))


def halt(one: "Drained") -> str | None:
    """How long a live move halts the guest, for people."""
    about = "about " if one.outcome == "planned" else ""
    return None if one.downtime_s is None else f"{about}{one.downtime_s:.1f} s"


def reason_of(one: "Drained") -> str | None:
    """Why it does not move, or not live."""
    return one.reason or (None if one.not_live is None else f"not live: {one.not_live}")


def _refuse_rest(host: str, rows: "Sequence[Drained]", hint: str) -> None:
    left = [one for one in rows if one.is_left]
    if left:
        raise PartialFailure(
            f"{counted(len(left), 'object')} of {host} could not leave it",
            context=[
                f"{one.subject}: {'; '.join(filter(None, (one.reason, one.outcome if one.has_failed else None)))}"
                for one in left
            ],
            hint=hint,
        )
    failed = [one for one in rows if one.has_failed]
    if failed:
        raise PartialFailure(
            f"{counted(len(failed), 'VM')} of {host} moved and did not start",
            context=[f"{one.subject}: {one.outcome}" for one in failed],
            hint="see the reason, then give the command again, or start them with `vgpuctl start-vm`",
        )
