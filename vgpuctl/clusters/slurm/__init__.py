# SPDX-License-Identifier: Apache-2.0
"""Slurm: scontrol and sinfo against a slurmctld, and what it hands to its power-saving programs."""
