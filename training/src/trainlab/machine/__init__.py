"""What the machine gave a run: the peak memory of its parts (memory.py), the cards before it starts (gpus.py)."""
