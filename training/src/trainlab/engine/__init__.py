"""What all recipes train with: the trainer and its checkpoints, ranks, memory, and GPU-only features."""
