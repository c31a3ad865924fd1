"""The base of every section of a values file: unknown keys are errors, and the types that several sections share.

Patterns are read by Rust's, Go's and Python's engines: no look-around, no \\w or \\d, which differ between them.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

_NUMBER = r"([1-9][0-9]*(\.[0-9]+)?|0\.[0-9]*[1-9][0-9]*)"  # above 0
_BYTES = "(Ki|Mi|Gi|Ti|k|M|G|T)"
# One segment of a path, neither `.` nor `..`
_SEGMENT = r"(\.\.[A-Za-z0-9._-]|\.?[A-Za-z0-9_-])[A-Za-z0-9._-]*"
PATH = rf"{_SEGMENT}(/{_SEGMENT})*"
OBJECT = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*"
MOST_EXACT = 2**53 - 1  # above it a JSON number, which Helm reads as float64, may change

Name = Annotated[str, StringConstraints(pattern=r"^[a-z]([-a-z0-9]{0,28}[a-z0-9])?$")]
ObjectName = Annotated[str, StringConstraints(pattern=rf"^({OBJECT})?$", max_length=253)]
"""Name of a Kubernetes object (RFC 1123), or empty for none."""
Cpu = Annotated[str, StringConstraints(pattern=rf"^{_NUMBER}m?$")]
Bytes = Annotated[str, StringConstraints(pattern=rf"^{_NUMBER}{_BYTES}?$")]
OptionalBytes = Annotated[str, StringConstraints(pattern=rf"^({_NUMBER}{_BYTES}?)?$")]


class Strict(BaseModel):
    """Base of all sections: unknown keys are errors, values never change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)
