# SPDX-License-Identifier: Apache-2.0
"""What users write. Reading a file comes first; what a file means is left to the floors above."""
