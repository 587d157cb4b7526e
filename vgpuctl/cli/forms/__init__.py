# SPDX-License-Identifier: Apache-2.0
"""Forms that many commands have: on services, on VMs, of deletions, of exports, and the conventions of all."""
