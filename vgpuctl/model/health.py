# SPDX-License-Identifier: Apache-2.0
"""Findings about the health of GPUs, and the fleet's policy for them (docs/health.md)."""

from dataclasses import dataclass
from enum import StrEnum

from vgpuctl.model.secret import ProgramLine


class HealthCode(StrEnum):
    """The stable codes of findings. docs/health.md explains each."""

    OFF_THE_BUS = "off-the-bus"
    GPU_MISSING = "gpu-missing"
    CONFIG_DIFFERS = "config-differs"
    BAR_UNASSIGNED = "bar-unassigned"
    DRIVER_DIFFERS = "driver-differs"
    DRIVER_FAILED = "driver-failed"
    VBIOS_CHANGED = "vbios-changed"
    VF_WEDGED = "vf-wedged"
    RESET_REQUIRED = "reset-required"
    NO_RESET = "no-reset"
    RESET_FAILED = "reset-failed"
    SCRUB_OFF = "scrub-off"
    ECC_UNCORRECTED = "ecc-uncorrected"
    ROW_REMAP_PENDING = "row-remap-pending"
    ROW_REMAP_FAILED = "row-remap-failed"
    PAGE_RETIREMENT_PENDING = "page-retirement-pending"
    PAGES_RETIRED = "pages-retired"
    MEMORY_TEST_FAILED = "memory-test-failed"
    UNREAD = "health-unread"
    ROM_UNREAD = "rom-unread"

    XID_RESTART_APP = "xid-restart-app"
    XID_IGNORE = "xid-ignore"
    XID_RESTART_VM = "xid-restart-vm"
    XID_UPDATE_SWFW = "xid-update-swfw"
    XID_WORKFLOW_45 = "xid-workflow-45"
    XID_RESET_GPU = "xid-reset-gpu"
    XID_RESTART_BM = "xid-restart-bm"
    XID_CHECK_MECHANICALS = "xid-check-mechanicals"
    XID_CHECK_UVM = "xid-check-uvm"
    XID_WORKFLOW_48 = "xid-workflow-48"
    XID_WORKFLOW_NVLINK = "xid-workflow-nvlink"
    XID_CONTACT_SUPPORT = "xid-contact-support"


@dataclass(frozen=True)
class HealthFinding:
    """One finding about a GPU or VF. text: what was read. remedy: what to do."""

    code: HealthCode
    device: str
    text: str
    remedy: str


@dataclass(frozen=True)
class HealthPolicy:
    """The policy of one host.

    tolerate: findings that are events only; every other one puts a GPU into quarantine. The default has those that a
    guest's program or driver causes, and those for information. memory_test: a command that is run on the host before a
    whole GPU returns to the pool, None for none.
    """

    tolerate: tuple[HealthCode, ...] = (
        HealthCode.XID_RESTART_APP,
        HealthCode.XID_IGNORE,
        HealthCode.XID_RESTART_VM,
        HealthCode.XID_UPDATE_SWFW,
        HealthCode.XID_WORKFLOW_45,
    )
    memory_test: ProgramLine | None = None
    memory_test_timeout_s: int = 600

    def forbids(self, finding: HealthFinding) -> bool:
        """True if a GPU with this finding is not handed out."""
        return finding.code not in self.tolerate


DEFAULT_HEALTH_POLICY = HealthPolicy()
