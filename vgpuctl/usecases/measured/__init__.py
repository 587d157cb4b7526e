# SPDX-License-Identifier: Apache-2.0
"""Past readings, and what placing and pages make of them."""
