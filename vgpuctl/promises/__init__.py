# SPDX-License-Identifier: Apache-2.0
"""The promises to a VM's owner, compared with what each witness shows. Pure: no I/O, no clock."""
