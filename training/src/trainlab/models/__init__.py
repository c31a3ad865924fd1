"""Models before training: where they come from, how they are loaded, which parts are trained.

fetch.py fills the model volume (hub.py from a hub), parents.py adopts the model of an earlier stage, drawn.py locates
randomly initialized ones, chat.py loads models and builds prompts, layers.py freezes, lora.py adds adapters, compute.py
picks dtype and device, architectures.py is the table that the planner reads.
"""
