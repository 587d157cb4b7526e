# SPDX-License-Identifier: Apache-2.0
"""What tenants may use and what they use: arithmetic on values, no I/O, no clock."""
