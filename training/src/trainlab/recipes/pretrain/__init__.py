"""Pre-training from weights drawn at random: recipe cpt with a curriculum of sequence lengths."""
