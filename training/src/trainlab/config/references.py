"""How models and data sets are named: the kinds of references, and which of them a recipe takes."""

from trainlab.config.strict import PATH

NETWORK = "builtin:resnet18"
DIGITS, CIFAR10, TOPICS = "builtin:digits", "torchvision:cifar10", "pydoc:topics"
KINDS = {
    "pypi": r"pypi:[A-Za-z0-9._-]+==[A-Za-z0-9.]+",
    "hf": r"hf:[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+@[0-9a-f]{40}",
    "pvc": f"pvc:{PATH}",
    "init": r"init:llama-(2\.4M|139M|7\.39B)",
    "parent": r"parent:llama-(2\.4M|139M|7\.39B)",
    "builtin": "builtin:[a-z][-a-z0-9]*",
    NETWORK: NETWORK,
    DIGITS: DIGITS,
    CIFAR10: CIFAR10,
    TOPICS: TOPICS,
    "trained": "trained",
}
"""Kind of a reference -> its pattern."""


def form(*kinds: str) -> str:
    """Return the pattern of a key that takes references of these kinds."""
    return f"^({'|'.join(KINDS[kind] for kind in kinds)})$"
