"""The section `vision:`: image classification."""

from typing import Literal

from pydantic import Field

from trainlab.config.strict import Strict


class Vision(Strict):
    """Image classification."""

    image_size: int = Field(
        32, ge=8, le=256, description="Height and width of the network's input; smaller or larger images are resized."
    )
    # Below 16 oneDNN's 1x1 convolutions write out of bounds on CPU: https://github.com/uxlfoundation/oneDNN/issues/6035
    width: int = Field(64, ge=16, le=256, description="Channels of the first stage; 64 is ResNet-18.")
    optimizer: Literal["sgd", "adamw"] = Field("sgd", description="sgd has Nesterov momentum.")
    momentum: float = Field(0.9, ge=0, lt=1, description="Momentum of sgd.")
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="Share of the target spread over all classes.")
    crop_padding: int = Field(
        0, ge=0, le=32, description="Shift training images at random by up to this many input pixels."
    )
    flip: bool = Field(False, description="Mirror training images at random; only where a mirror image means the same.")
    compile: bool = Field(False, description="Compile the network with torch.compile.")
    min_accuracy: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="The gate requires the lower bound of the test accuracy's interval to be above this share.",
    )
    shown: int = Field(24, ge=1, le=200, description="Test images whose predictions the report shows, drawn evenly.")
