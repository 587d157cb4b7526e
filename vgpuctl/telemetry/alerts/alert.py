# SPDX-License-Identifier: Apache-2.0
"""One alert and its urgency. Its id and remedy are those of its fault (model/faults.py), as in events and checks."""

from dataclasses import dataclass
from enum import StrEnum

from vgpuctl.model.faults import FAULTS, Fault, FaultId
from vgpuctl.model.health import HealthCode


class AlertSeverity(StrEnum):
    """The urgency of an alert, as its label `severity`."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"

    @property
    def meaning(self) -> str:
        """The operator's reaction."""
        return {"critical": "somebody looks now", "warning": "somebody looks today", "info": "nobody is woken"}[self]


@dataclass(frozen=True)
class Alert:
    """One alerting rule.

    group: the file it is in. lasts: how long the expression must hold (`for`); keeps: how long the alert goes on after
    it no longer holds (`keep_firing_for`), for values that flap. summary: a template of Prometheus.
    """

    fault: HealthCode | FaultId
    group: str
    name: str
    severity: AlertSeverity
    expression: str
    summary: str
    lasts: str = "0m"
    keeps: str | None = None

    @property
    def told(self) -> Fault:
        """Meaning and remedy."""
        return FAULTS[self.fault]


CRITICAL, WARNING, INFO = AlertSeverity
