# SPDX-License-Identifier: Apache-2.0
"""The choice of host and GPU for a VM. Pure: the host's last facts and the store's leases in, a placement out."""
