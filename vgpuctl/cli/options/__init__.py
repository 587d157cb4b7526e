# SPDX-License-Identifier: Apache-2.0
"""Options and arguments that several commands take."""
