"""The staged phase: one model made in stages (pretrain, sft, dpo, lora), each a run of its own with a parent and a gate.

parents.py finds and checks the stage before, stage_gate.py judges, stage_recipes.py has the hooks, init.py draws the first
model, stored.py reads prepared tokens, pairs.py preferences, acceleration.py what only GPUs have.
"""
