# SPDX-License-Identifier: Apache-2.0
"""The table of the inventory variable `vgpu_health`: what happens to a GPU that is not healthy (docs/health.md)."""

import shlex

from vgpuctl.errors import UsageError
from vgpuctl.model.health import DEFAULT_HEALTH_POLICY, HealthCode, HealthPolicy
from vgpuctl.model.secret import ProgramLine
from vgpuctl.specs.field import Choice, Field, Repeated, Table, Text, Whole

HEALTH_VARIABLE = "vgpu_health"
_LONGEST_TEST_S = 86_400


def program_path(text: str, /, *, what: str) -> ProgramLine:
    """Accept a command that begins with the path of a program. Raises UsageError without the command."""
    command = ProgramLine(text)
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{what} is `{command}`, not a command: {error}") from error
    if not words or not words[0].startswith("/"):
        raise UsageError(f"{what} is `{command}`, which does not begin with the path of a program")
    return command


HEALTH = Table(
    "vgpu_health",
    HealthPolicy,
    (
        Field(
            "tolerate",
            Choice(HealthCode),
            "Findings that are events only; every other one puts a GPU into quarantine",
            metavar="CODE",
            is_list=True,
            default=", ".join(DEFAULT_HEALTH_POLICY.tolerate),
            repeated=Repeated.DROPPED,
        ),
        Field(
            "memory_test",
            Text(program_path, pattern="^/"),
            "Command run on the host before a whole GPU returns to the pool",
            metavar="COMMAND",
        ),
        Field("memory_test_timeout", Whole(1, _LONGEST_TEST_S), "Its time limit in seconds", "memory_test_timeout_s"),
    ),
)
