# SPDX-License-Identifier: Apache-2.0
from vgpuctl.cli.main import main

main()
