# SPDX-License-Identifier: Apache-2.0
"""The sessions of a BGP speaker, as FRR on its host has them."""

from vgpuctl.errors import StateError
from vgpuctl.guests.frr import BgpSession, read_sessions
from vgpuctl.model.printable import printable
from vgpuctl.usecases.running.services import Services

BGP = "bgp"
"""The kind of the network functions that are speakers, as in ovn.topology.speaker_place."""
SUMMARY = "summary"
"""The name of the question to FRR."""
_MOST_WORDS = 200


def bgp_sessions(services: Services, host: str, name: str) -> list[BgpSession]:
    """Ask the function of one speaker. Raises HostError, and StateError where FRR does not answer."""
    functions = services.host(host).agent.functions(name).functions
    there = next((one for one in functions if one.name == name), None)
    if there is None:
        raise StateError("its speaker is not there", hint="`vgpuctl repair` makes it")
    answer = next((one for one in there.answers if one.name == SUMMARY), None)
    if answer is None or answer.problem:
        raise StateError(printable("it was not asked" if answer is None else answer.problem)[:_MOST_WORDS])
    try:
        return read_sessions(answer.text)
    except ValueError as error:
        raise StateError(str(error)) from error
