# SPDX-License-Identifier: Apache-2.0
"""Template files; read by vgpuctl.guests."""
