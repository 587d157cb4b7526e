# SPDX-License-Identifier: Apache-2.0
"""What the inventory declares for hosts, and how it differs from what is there."""
