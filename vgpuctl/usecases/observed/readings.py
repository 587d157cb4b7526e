# SPDX-License-Identifier: Apache-2.0
"""Caching of readings in the store: facts, observed states.

A store that cannot be written ends no command that reads.
"""

from collections.abc import Callable

from vgpuctl.errors import StoreNotTheSame, StoreUnusable
from vgpuctl.store.store import Session
from vgpuctl.usecases.running.services import Services


def keep_reading(services: Services, what: str, note: Callable[[Session], None]) -> None:
    """Write a reading to the store. Where it cannot be written the user is warned once, and the command goes on.

    what: the reading in words.
    """
    try:
        reason = services.store.read_only_reason
        if reason is None:
            with services.store.transaction() as session:
                note(session)
            services.has_warned_of_store = False
            return
        reason = f"{services.store.name}: {reason}"
    except StoreNotTheSame:
        raise
    except StoreUnusable as error:
        reason = error.message + (f" ({error.hint})" if error.hint else "")
    if not services.has_warned_of_store:
        services.has_warned_of_store = True
        services.say(f"warning: {what} is not kept in the store: {reason}")
