# SPDX-License-Identifier: Apache-2.0
"""The tables, one file for each subject; `vgpuctl.store.tables` has them all. Commands need only the version."""

SCHEMA_VERSION = "0003"
VERSION_TABLE = "vgpuctl_version"
