"""Continued pre-training on running text, judged by its perplexity."""
