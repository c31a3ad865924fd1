"""Does what a run learns survive the rounding of its result to bfloat16? Used by the planner and before the first step.

Weights are trained in float32 and saved as `model.saved_dtype`. bfloat16 has 8 significant bits: between 2^e and 2^(e+1) its
numbers are 2^(e-7) apart, so a weight that began on one of them and moved by less than half of that is rounded back to
it. AdamW moves a weight by about the learning rate per step whatever the gradient's size (Kingma & Ba, arXiv 1412.6980,
section 2.1), hence by at most the sum of the rates.
"""

import math

WEIGHT = 0.02
"""Standard deviation of a usual weight: `initializer_range` of Llama, SmolLM and most others."""
MIN_SHARE = 0.5
"""Refused below this share of weights that can change."""


def travel(learning_rate: float, steps: int) -> float:
    """Return how far a weight can move: the sum of the rates, which rise linearly and then fall as a cosine does."""
    return learning_rate * steps / 2


def changeable(distance: float) -> float:
    """Return the share of weights, normal with mean 0, that a move of `distance` takes to another bfloat16 number."""
    if distance <= 0:
        return 0.0
    largest = 2.0 ** (math.floor(math.log2(distance)) + 9)  # below it half a gap is at most `distance`
    return math.erf(largest / (WEIGHT * math.sqrt(2)))


def lost(learning_rate: float, steps: int) -> str | None:
    """Return the sentence for an update of whole weights that saving as bfloat16 would mostly undo, None for others."""
    distance = travel(learning_rate, steps)
    share = changeable(distance)
    if share >= MIN_SHARE:
        return None
    return (
        f"phase.train.learning_rate is {learning_rate:g}: {steps} steps move a weight by at most {distance:.2g}; saved as "
        f"bfloat16, {1 - share:.0%} of weights of the usual size {WEIGHT:g} are rounded back to what they were; set "
        "phase.model.saved_dtype to float32, or raise the rate or train.epochs"
    )
