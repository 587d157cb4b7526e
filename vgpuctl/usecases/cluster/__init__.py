# SPDX-License-Identifier: Apache-2.0
"""The cluster of a node hears of what happens to its VM before it happens."""
