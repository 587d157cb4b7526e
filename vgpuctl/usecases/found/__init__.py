# SPDX-License-Identifier: Apache-2.0
"""What a command names, found in the store: VMs, images, types, and what it deletes."""
