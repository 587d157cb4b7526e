# SPDX-License-Identifier: Apache-2.0
"""Every view with a golden file."""

from tests.unit.guests.cases import CASES as PLAIN_CASES
from tests.unit.guests.os_cases import OS_CASES
from vgpuctl.guests.domain.view import DomainView

CASES: dict[str, DomainView] = {**PLAIN_CASES, **OS_CASES}
