# SPDX-License-Identifier: Apache-2.0
"""Hosts that fail while VMs are created: they are left out for the rest of the run, and the VMs are placed again."""

import contextlib
from collections.abc import Collection, Iterator, Sequence

from vgpuctl.errors import HostError, HostUnreachable, NoCapacity, VgpuctlError
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.vm import VmRequest
from vgpuctl.usecases.observed.survey import survey
from vgpuctl.usecases.running.services import Services


@contextlib.contextmanager
def on_host(name: str) -> Iterator[None]:
    """Note in a HostError of the block which host failed."""
    try:
        yield
    except HostError as error:
        error.host = error.host or name
        raise


class FailedHosts:
    """The hosts that failed during one run, with the error of each."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._errors: dict[str, VgpuctlError] = {}

    @property
    def names(self) -> Collection[str]:
        """The hosts that failed so far."""
        return self._errors.keys()

    def read_others(self, names: Sequence[str], *, refresh: bool) -> list[HostCapacity]:
        """Know the facts of the hosts that did not fail; those that fail now are left out from here on.

        Raises the host's error when none is left; of several hosts, one that names all.
        """
        others = self._survey([name for name in names if name not in self._errors], refresh=refresh)
        if not others and self._errors:
            raise self._none_left()
        return others

    def read_again(self, names: Sequence[str], again: Collection[str]) -> list[HostCapacity]:
        """Read some of these hosts again; of the others what is cached, with the promises of now. As `read_others`."""
        read = {one.name: one for one in self._survey([name for name in names if name in again], refresh=True)}
        return [read.get(one.name, one) for one in self.read_others(names, refresh=False)]

    def after(
        self, error: HostError, requests: Sequence[VmRequest], capacities: Sequence[HostCapacity]
    ) -> list[HostCapacity]:
        """The hosts on which VMs can be placed again after `error.host` failed, under them or under preempted VMs.

        After a second host failed the others are read at once, so that ten dead hosts do not cost ten time-outs.
        Raises the error when something of the VMs is left, when they must run on that host, or when no host is left.
        """
        if error.host is None or any(one.host == error.host for one in requests) or self._is_left(requests):
            raise error
        self._services.forget_host(error.host)
        self._leave_out(error.host, error)
        others = [one for one in capacities if one.name not in self._errors]
        if not others:
            raise self._none_left()
        if len(self._errors) > 1:
            return self.read_others([one.name for one in others], refresh=True)
        return others

    def explain(self, full: NoCapacity) -> NoCapacity:
        """The refusal of the hosts that answered, with those that were left out."""
        if not self._errors:
            return full
        names = ", ".join(self._errors)
        lines = [f"{name} was left out: {error.said_of(name)}" for name, error in self._errors.items()]
        return NoCapacity(
            f"{full.message}; {names} failed",
            context=[*lines, *full.context],
            hint=full.hint,
            brief=None if full.brief is None else [*lines, *full.brief],
            short=full.short,
            stays=full.stays,
        )

    def _survey(self, names: Sequence[str], *, refresh: bool) -> list[HostCapacity]:
        seen = survey(self._services, names, refresh=refresh)
        for name, error in seen.failures:
            self._leave_out(name, error)
        return list(seen.capacities)

    def _none_left(self) -> VgpuctlError:
        first, *others = self._errors.values()
        if not others:
            return first
        lines = [error.line_of(name) for name, error in self._errors.items()]
        message = f"no host is left: {', '.join(self._errors)} failed"
        are_silent = all(isinstance(one, HostUnreachable) for one in self._errors.values())
        return (HostUnreachable if are_silent else HostError)(message, context=lines, hint=first.hint)

    def _leave_out(self, name: str, error: VgpuctlError) -> None:
        self._errors[name] = error
        self._services.say(f"{name} failed and is left out: {error.said_of(name)}")

    def _is_left(self, requests: Sequence[VmRequest]) -> bool:
        """True if rolling back left something, so that the store still has a row."""
        with self._services.store.reading() as session:
            return any(session.vm(one.tenant, one.name) is not None for one in requests)
