# SPDX-License-Identifier: Apache-2.0
"""Past readings from a real Prometheus, which scrapes the real exporter: the charts of each page."""

import html
import re
from functools import partial

import pytest

from tests.integration.prometheus.scene import CARD, Scene
from tests.prometheus_fixture import wait_for
from vgpuctl.agent.wire.measures import measure


@pytest.mark.parametrize(
    ("page", "drawn"),
    [
        ("/tenants/acme/vms/web-1", {"vm": "memory_rss_bytes", "vgpu": "utilization_ratio"}),
        (f"/hosts/sim-001/gpus/{CARD}", {"gpu": "power_watts", "vgpu": "framebuffer_used_bytes"}),
        ("/hosts/sim-001", {"host": "memory_available_bytes"}),
    ],
)
def test_a_page_draws_each_kind_of_object_from_prometheus(scene: Scene, page: str, drawn: dict[str, str]) -> None:
    for kind, name in drawn.items():
        query = f'{measure(kind, name).metric}{{host="sim-001"}}'
        wait_for(partial(scene.prometheus.query, query), f"data of {query}")
    printed = scene.operator.does("serve", "web", "--cached", "--print", page, "--prometheus", scene.prometheus.url)
    figures = re.findall(r"<figure.*?</figure>", html.unescape(printed.out), re.DOTALL)
    for kind, name in drawn.items():
        having = [one for one in figures if measure(kind, name).text in one]
        assert having and all("<polyline" in one for one in having), f"{page} does not draw {kind} {name}"
