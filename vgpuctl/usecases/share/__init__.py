# SPDX-License-Identifier: Apache-2.0
"""Steps on the GPU shares of VMs that several commands take."""
