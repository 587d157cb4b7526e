# SPDX-License-Identifier: Apache-2.0
"""Decides, from what was read of two hosts, whether and how a VM can go from one to the other. Pure."""
