# SPDX-License-Identifier: Apache-2.0
"""How answers look: text, colour, tables, bars, JSON, errors."""
