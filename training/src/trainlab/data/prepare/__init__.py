"""Source files to blocks of tokens for pre-training: clean, de-duplicate, tokenize, pack; bounded memory, resumable.

`prepare_command.py` is `trainlab prepare`; training reads the result with `blocks.Blocks`, which needs NumPy
only. No torch of our own; transformers imports it where the tokenizer is loaded.
"""
