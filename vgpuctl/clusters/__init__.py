# SPDX-License-Identifier: Apache-2.0
"""The clusters that tenants run on top: how vgpuctl tells them of their nodes, and reads their members."""
