# SPDX-License-Identifier: Apache-2.0
"""Rules about handing out GPUs that placing, planning and checking ask alike: what was declared, what a card allows."""
