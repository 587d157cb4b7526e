# SPDX-License-Identifier: Apache-2.0
"""The planner's answer."""

from dataclasses import dataclass

from vgpuctl.agent.wire.steps import Step


@dataclass(frozen=True)
class Plan:
    """Steps in the order they are applied, what rolls them back (last step first), and both in words for `--dry-run`.

    Without steps there is nothing to do on the host; the summary then says why.
    """

    steps: tuple[Step, ...] = ()
    undo: tuple[Step, ...] = ()
    summary: tuple[str, ...] = ()
