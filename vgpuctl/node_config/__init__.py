# SPDX-License-Identifier: Apache-2.0
"""What a node of a cluster is configured with: labels, join files, device plugin, Slurm lines. Pure."""
