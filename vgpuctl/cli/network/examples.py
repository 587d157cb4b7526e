# SPDX-License-Identifier: Apache-2.0
"""Examples of the commands in this folder."""

from vgpuctl.cli.support.examples import Example

EXAMPLES: dict[str, tuple[Example, ...]] = {}
