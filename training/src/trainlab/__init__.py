"""trainlab: the phases of a model-training demo as data, their recipes as code."""

import logging

__version__ = "0.1.0"

# torchao 0.18 registers its enums in a way that torch 2.13 calls deprecated, twice in each process that imports
# transformers; set here because it has to stand before that import.
logging.getLogger("torch.utils._pytree").setLevel(logging.ERROR)
