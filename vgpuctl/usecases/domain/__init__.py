# SPDX-License-Identifier: Apache-2.0
"""Steps of several commands on a VM's domain and its firmware state."""
