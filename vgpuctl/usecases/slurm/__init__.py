# SPDX-License-Identifier: Apache-2.0
"""The power-saving programs of Slurm and its configuration."""
