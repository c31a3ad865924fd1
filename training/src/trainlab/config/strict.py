"""What every section of a values file stands on: unknown keys are errors, and the types that several sections share."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

Name = Annotated[str, StringConstraints(pattern=r"^[a-z]([-a-z0-9]{0,28}[a-z0-9])?$")]
Quantity = Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)?(m|Ki|Mi|Gi|Ti|k|M|G|T)?$")]
OptionalQuantity = Annotated[str, StringConstraints(pattern=r"^([0-9]+(\.[0-9]+)?(m|Ki|Mi|Gi|Ti|k|M|G|T)?)?$")]
MOST_EXACT = 2**53 - 1  # above it a number of JSON, which Helm reads as float64, may be another one


class Strict(BaseModel):
    """Base of all sections: unknown keys are errors, values never change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)
