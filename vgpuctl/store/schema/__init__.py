# SPDX-License-Identifier: Apache-2.0
"""The tables by subject; tables.py has them all, and the version of the schema."""
