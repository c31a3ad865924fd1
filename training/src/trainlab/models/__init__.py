"""Models before they are trained: where they come from, how they are loaded, what of them is trained.

fetch.py fills the model volume, parents.py takes the model of an earlier stage, drawn.py says where one drawn at random lies,
chat.py loads models and makes prompts, layers.py freezes, lora.py adds adapters, compute.py says dtype and device,
architectures.py is the table that the planner reads.
"""
