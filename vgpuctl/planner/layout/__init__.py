# SPDX-License-Identifier: Apache-2.0
"""From a host's declared layout and its facts to ordered steps, what they disturb, their undo, and the differences."""
