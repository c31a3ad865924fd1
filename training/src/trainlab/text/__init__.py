"""Running text for continued pre-training: where it is, its documents, its parts, its blocks, its scores; used by recipe cpt.

text_sources.py finds, read.py reads files, corpus.py splits, pack.py makes blocks of tokens,
block_score.py, perplexity_gate.py and text_report.py judge, text_recipe.py joins them.
"""
