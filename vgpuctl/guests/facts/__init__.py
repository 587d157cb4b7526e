# SPDX-License-Identifier: Apache-2.0
"""What libvirt's XML, its capabilities and guests say, read into values."""
