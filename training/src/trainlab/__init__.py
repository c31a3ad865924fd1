"""trainlab: the phases of a model-training demo as data, their recipes as code."""

__version__ = "0.1.0"
