# SPDX-License-Identifier: Apache-2.0
"""The metrics that the exporter has, those that an expression of PromQL reads, and the labels that it asks of each."""

import re
from collections.abc import Iterable, Mapping

from vgpuctl.agent.wire.labelled import OBJECT_LABELS
from vgpuctl.agent.wire.measures import MEASURES
from vgpuctl.model.states import STATE_KINDS
from vgpuctl.telemetry.own_metrics import OWN_METRICS
from vgpuctl.telemetry.recordings import RECORDINGS

_SELECTOR = re.compile(r"\b((?:[a-z]+:)?(?:vgpuctl|ALERTS|DCGM)\w*(?::[a-z]+)?)(?:\{([^}]*)\})?")
_TEXT = re.compile(r'"[^"]*"')
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_GROUPING = re.compile(r"\b(?:by|on|without) \(([^)]*)\)")


def known_metrics() -> Mapping[str, frozenset[str] | None]:
    """Every metric of the exporter with its labels; None for a recording rule, whose labels follow from it."""
    found: dict[str, frozenset[str] | None] = {one.name: None for one in RECORDINGS}
    found |= {one.metric: frozenset((*OBJECT_LABELS[one.of], *one.labels)) for one in MEASURES}
    found |= {one.metric: frozenset((*one.labels, *(() if one.states is None else ("state",)))) for one in STATE_KINDS}
    return found | {one.name: frozenset(one.labels) for one in OWN_METRICS}


def selectors_of(expression: str) -> Iterable[tuple[str, frozenset[str]]]:
    """(metric, labels of its matchers) of every selector of an expression."""
    for name, matchers in _SELECTOR.findall(_TEXT.sub('""', expression)):
        yield name, frozenset(_MATCHER.findall(matchers))


def grouped_labels(expression: str) -> frozenset[str]:
    """Every label that an expression groups or matches by."""
    groups = (group.split(",") for group in _GROUPING.findall(expression))
    return frozenset(label.strip() for group in groups for label in group if label.strip())
