# SPDX-License-Identifier: Apache-2.0
"""Steps that build a share on its host and steps that release it. Pure: facts in, steps out."""
