# SPDX-License-Identifier: Apache-2.0
"""Values and units: frozen data classes and closed sets, without rules of placing or of hardware."""
