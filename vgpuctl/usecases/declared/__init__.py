# SPDX-License-Identifier: Apache-2.0
"""The declarations of the inventory, and how a host differs from them."""
