# SPDX-License-Identifier: Apache-2.0
"""Readings: what is measured of a host's GPUs, MIG instances, vGPUs and VMs, now."""
