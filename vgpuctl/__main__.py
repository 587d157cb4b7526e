# SPDX-License-Identifier: Apache-2.0
"""`python -m vgpuctl` is the command."""

from vgpuctl.cli.main import main

main()
