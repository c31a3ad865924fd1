"""Supervised fine-tuning on questions and answers: the last layers, LoRA adapters, or all weights of a stage."""
