# SPDX-License-Identifier: Apache-2.0
"""A file that says whose the domains of a host are: a mapping of domain to `TENANT` or `TENANT/NAME`."""

from vgpuctl.specs.document import read_document
from vgpuctl.specs.value import Value
from vgpuctl.trusted_files import NAMED


def read_owners(path: str) -> dict[str, str]:
    """Owner by domain. Raises InventoryError with file and line."""
    document = read_document(path, NAMED)
    top = Value(document.data, document.origin(), "", name="file", subject="a mapping of domains to tenants")
    return {domain: value.text() for domain, value in top.mapping().items()}
