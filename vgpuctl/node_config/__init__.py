# SPDX-License-Identifier: Apache-2.0
"""The configuration of a cluster's node: labels, join files, device plugin, Slurm lines. Pure."""
