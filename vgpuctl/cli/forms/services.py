# SPDX-License-Identifier: Apache-2.0
"""From a command's options to services and back: the few lines that every command would otherwise repeat."""

import inspect
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from vgpuctl.cli.forms.configuration import configured, note_change, refuse_change_elsewhere
from vgpuctl.cli.frame.command_line import running
from vgpuctl.cli.options.options import inventory_reader
from vgpuctl.cli.shown.output import say
from vgpuctl.cli.shown.progress import SILENCE, FleetLine
from vgpuctl.errors import HostError, InventoryError, PartialFailure, VgpuctlError
from vgpuctl.logs import PROGRESS
from vgpuctl.model.plural import counted

if TYPE_CHECKING:
    from vgpuctl.model.rehearsal import Rehearsal
    from vgpuctl.usecases.observed.survey import Survey
    from vgpuctl.usecases.running.services import Services


_MOST_ALIKE, _MOST_NAMED = 3, 8
"""Failures that are alike and still have a line each; and those of a group that are named."""


def services(
    *,
    inventories: Sequence[str] = (),
    database: str | None = None,
    limit: str | None = None,
    forks: int | None = None,
    known_hosts: Path | None = None,
    connect_timeout_s: float = 10.0,
    command_timeout_s: float = 60.0,
    history: Path | None = None,
    prometheus: str | None = None,
    rehearses: bool = False,
) -> "Services":
    """Open the services that these options describe; use it in a `with` block.

    rehearses: for a dry run that goes on past the changes of hosts (Services.goes_on).
    Raises FileNotTrusted for a command that would change what the user may not mean (`refuse_change_elsewhere`).
    """
    from vgpuctl.wiring import Settings, open_services

    refuse_change_elsewhere()
    note_change()
    SILENCE.start()
    return open_services(
        Settings(
            inventories,
            database,
            limit,
            forks,
            known_hosts,
            connect_timeout_s,
            command_timeout_s,
            key_file=_path("key_file"),
            ovn_northbound=configured("ovn_northbound"),
            ovn_southbound=configured("ovn_southbound"),
            ovn_key=_path("ovn_key"),
            ovn_certificate=_path("ovn_certificate"),
            ovn_authority=_path("ovn_authority"),
            authority_folder=_path("authority_folder"),
            command=_command_name(),
            history=history or _path("history"),
            prometheus=prometheus or configured("prometheus"),
            performance=_path("performance"),
            slurm_folder=_path("slurm_folder"),
            reachable_networks=_list("reachable_networks"),
            internal_domain=configured("internal_domain"),
            cluster_networks=_list("cluster_networks"),
            inventory_reader=inventory_reader() or configured("inventory_reader"),
            rehearsal=_rehearsal() if rehearses else running().rehearsal,
        ),
        (lambda text: _tell(f"dry run: {text}")) if rehearses else _tell,
        watch=FleetLine(),
    )


def _rehearsal() -> "Rehearsal":
    from vgpuctl.model.rehearsal import Rehearsal

    return Rehearsal(goes_on=True)


def services_of_hosts(**where: Any) -> "Services":
    """The same for a command that asks hosts whatever comes. Raises InventoryError and UsageError where there is none.

    Such a command imports its use case within the block: an inventory that is missing is told without it.
    """
    opened = services(**where)
    opened.hosts()
    return opened


def _command_name() -> str:
    context = click.get_current_context(silent=True)
    return (context.info_name or "") if context is not None else ""


def _tell(text: str) -> None:
    PROGRESS.info("said", extra={"fields": {"text": text}})
    say(text)


def take_service_options(given: dict[str, Any]) -> dict[str, Any]:
    """Take the options of `services` out of a command's options, so that the rest is what the user asks for."""
    return {name: given.pop(name) for name in inspect.signature(services).parameters if name in given}


def _path(key: str) -> Path | None:
    named = configured(key)
    return Path(named) if named else None


def _list(key: str) -> list[str]:
    found = configured(key) or ()
    return found.replace(",", " ").split() if isinstance(found, str) else list(found)


def report_failures(failures: Sequence[tuple[str, VgpuctlError]], *, answered: int) -> None:
    """Tell which hosts did not answer, or have a mistake in the inventory, after the others' data was printed.

    Raises PartialFailure when some answered, else the only or first error.
    """
    if not failures:
        return
    is_inventory = all(isinstance(error, InventoryError) for _name, error in failures)
    _raise_together(failures, "are wrong in the inventory" if is_inventory else "did not answer", others=answered)


def report_survey(seen: "Survey") -> None:
    """The same for a survey; a host of which something could not be read counts too, also where that is cached."""
    failures = dict((*seen.incomplete, *seen.failures))
    if failures:
        what = "could not be read in full" if seen.incomplete else "did not answer"
        others = sum(one.name not in failures for one in seen.capacities)
        _raise_together(list(failures.items()), what, others=others)


def report_hosts(
    failures: Sequence[tuple[str, VgpuctlError]],
    *,
    fine: int,
    what: str,
    left: Sequence[str] = (),
    noun: str = "host",
) -> None:
    """End a run over hosts whose lines were printed: nothing for a run where all went well.

    Raises the error of the only host there was, else PartialFailure with a line per host. left: hosts not begun.
    noun: `VM` for a run over VMs.
    """
    if failures:
        _raise_together(failures, what, others=fine + len(left), noun=noun)


def _raise_together(
    failures: Sequence[tuple[str, VgpuctlError]], what: str, *, others: int, noun: str = "host"
) -> NoReturn:
    """Raise the only error as it is; for several that are all there is, one with their exit code."""
    if len(failures) == 1 and not others:
        raise failures[0][1]
    kind: type[VgpuctlError] = PartialFailure
    for one in (HostError, InventoryError):
        if not others and all(isinstance(error, one) for _name, error in failures):
            kind = one
    raise kind(
        f"{len(failures)} of {counted(len(failures) + others, noun)} {what}",
        context=_grouped(failures, noun),
    )


def _grouped(failures: Sequence[tuple[str, VgpuctlError]], noun: str) -> list[str]:
    """A line for each failure; one, with an example, for more than three that differ in names and numbers alone."""
    alike: dict[tuple[str, str], list[tuple[str, VgpuctlError]]] = {}
    for name, error in failures:
        said = re.sub(r"[0-9]+", "#", error.reason_of("").replace(name, ""))
        alike.setdefault((said, re.sub(r"[0-9]+", "#", (error.hint or "").replace(name, ""))), []).append((name, error))
    lines = []
    for group in alike.values():
        told = group[:1] if len(group) > _MOST_ALIKE else group
        texts = [
            f"{name}: {error.reason_of(name)}" + (f" (hint: {error.hint})" if error.hint else "")
            for name, error in told
        ]
        if len(told) < len(group):
            names = ", ".join(name for name, _ in group[:_MOST_NAMED]) + " …" * (len(group) > _MOST_NAMED)
            texts = [f"{counted(len(group), noun)} ({names}), for example {texts[0]}"]
        lines += texts
    return lines
