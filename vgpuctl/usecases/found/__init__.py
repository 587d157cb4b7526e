# SPDX-License-Identifier: Apache-2.0
"""The objects that a command names, found in the store: VMs, images, types, and things to delete."""
