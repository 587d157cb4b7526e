# SPDX-License-Identifier: Apache-2.0
"""The emulated host that all tests of a session share."""

from tests.lab_fixtures import kernel_host, lab_folder

__all__ = ["kernel_host", "lab_folder"]
