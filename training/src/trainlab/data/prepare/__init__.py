"""Source files to blocks of tokens for pre-training: clean, de-duplicate, tokenize, pack; bounded memory, resumable.

`options.py` is `trainlab prepare`; training reads the result with `blocks.Blocks`, which needs NumPy
only. We do not use torch here; transformers imports it when the tokenizer is loaded.
"""
