# SPDX-License-Identifier: Apache-2.0
"""Past readings, and their use by placing and by pages."""
