# SPDX-License-Identifier: Apache-2.0
"""Objects of tenants are printed as TENANT/NAME, and a libvirt domain is named where the domain itself is meant."""

import re

from tests.unit.uses_of_names import PACKAGE

_DOTTED = re.compile(r"\{[a-z_.\[\]0-9]*tenant[a-z_.]*\}\.\{")
_DOMAIN = re.compile(r"f\".*\{[a-z_.]*domain_name\}")
OF_DOMAINS = re.compile(r"virsh|domain +\{|-serial\.log|log/libvirt/qemu/|\{one\.vm\.domain_name\} \{verb\} VM")
"""Texts that mean the domain on its host: a command of libvirt, a file of QEMU, an adoption."""


def _lines(pattern: "re.Pattern[str]") -> list[str]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if "migrations" not in path.parts:
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                found += [f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"] * bool(pattern.search(line))
    return found


def test_no_text_joins_tenant_and_name_with_a_dot() -> None:
    assert _lines(_DOTTED) == []


def test_texts_name_the_domain_only_where_it_is_meant() -> None:
    found = _lines(_DOMAIN)
    assert len(found) > 5
    assert [one for one in found if not OF_DOMAINS.search(one)] == []
