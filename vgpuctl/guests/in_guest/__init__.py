# SPDX-License-Identifier: Apache-2.0
"""Programs that are copied into guests. They need nothing but the guest's own Python 3.6, or newer."""
