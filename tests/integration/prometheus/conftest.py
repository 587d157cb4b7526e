# SPDX-License-Identifier: Apache-2.0
"""One fleet under monitoring for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.integration.prometheus.scene import Scene, playing


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Hosts, exporter, Prometheus and Alertmanager."""
    with playing(tmp_path_factory.mktemp("scene")) as made:
        yield made
