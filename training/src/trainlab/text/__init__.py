"""Running text for continued pre-training: where it is, its documents, its parts, its blocks, its scores; used by recipe cpt.

sources.py finds, read.py reads files, corpus.py splits, pack.py makes blocks of tokens,
score.py, gate.py and content.py judge, recipe.py joins them.
"""
