# SPDX-License-Identifier: Apache-2.0
"""Files and flags that users write: reading and checking. The floors above use the result."""
