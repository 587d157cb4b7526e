# SPDX-License-Identifier: Apache-2.0
"""Single values by nvmlDeviceGetFieldValues, each with a return code and a type of its own."""

from typing import Any, Union

# NVML_VALUE_TYPE_*: member of nvmlValue_t by type.
_MEMBERS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}


def read_field(library: Any, device: Any, number: int, scope: int = 0) -> Union[int, float]:
    """Return one field's value. Raises NVMLError."""
    [answer] = library.nvmlDeviceGetFieldValues(device, [(number, scope)])
    if answer.nvmlReturn == library.NVML_ERROR_INVALID_ARGUMENT:
        # The field is younger than the driver.
        raise library.NVMLError(library.NVML_ERROR_NOT_SUPPORTED)
    if answer.nvmlReturn != library.NVML_SUCCESS:
        raise library.NVMLError(answer.nvmlReturn)
    member = _MEMBERS.get(answer.valueType)
    if member is None:
        raise library.NVMLError(library.NVML_ERROR_NOT_SUPPORTED)
    value: Union[int, float] = getattr(answer.value, member)
    return value
