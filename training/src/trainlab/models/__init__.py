"""Models before training: where they come from, how they are loaded, which parts are trained.

fetch.py fills the model volume, stored_weights.py knows which files are a model, parents.py adopts the model of an earlier stage,
chat.py loads models and builds prompts, layers.py freezes and adds adapters, compute.py picks dtype and device, architectures.py is
the table that the planner reads, export.py writes the result for other engines.
"""
