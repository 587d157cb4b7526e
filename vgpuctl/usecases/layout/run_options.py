# SPDX-License-Identifier: Apache-2.0
"""The permissions of a run that brings hosts into their layouts."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RunOptions:
    """Permissions of a run.

    check: plan and write nothing. disrupt: stop known VMs that are in the way, and start them again. reset: reset
    GPUs whose pending mode needs it. undo: roll back what was done on a host whose run failed. boot: install what
    restores the layout at boot. after_boot: the host was just booted, and the shares of its VMs come after the layout.
    patience_s: how long programs that have a GPU open are waited for before its steps are refused.
    """

    check: bool = False
    disrupt: bool = False
    reset: bool = False
    undo: bool = False
    boot: bool = True
    after_boot: bool = False
    patience_s: float = 10.0
