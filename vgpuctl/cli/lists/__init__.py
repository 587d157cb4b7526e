# SPDX-License-Identifier: Apache-2.0
"""Lists: columns, filters, forms, and lists that are shown live."""
