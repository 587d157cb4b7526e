# SPDX-License-Identifier: Apache-2.0
"""Options of the whole test suite."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--regenerate`: rewrite the golden files instead of comparing with them; read the diff afterwards."""
    parser.addoption("--regenerate", action="store_true", help="rewrite golden files from what the code gives now")


@pytest.fixture
def regenerate(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are rewritten."""
    return bool(request.config.getoption("--regenerate"))
