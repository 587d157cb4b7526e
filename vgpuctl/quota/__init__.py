# SPDX-License-Identifier: Apache-2.0
"""Quotas and use of tenants: arithmetic on values, no I/O, no clock."""
