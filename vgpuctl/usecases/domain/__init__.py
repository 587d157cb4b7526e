# SPDX-License-Identifier: Apache-2.0
"""Steps on the domain of a VM, and the firmware state beside it, that several commands take."""
