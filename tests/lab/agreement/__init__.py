# SPDX-License-Identifier: Apache-2.0
"""The two kinds of the lab give the same answers to the same cases."""
