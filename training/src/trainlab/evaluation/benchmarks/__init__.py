"""Benchmarks: tasks of lm-evaluation-harness before and after training; reported, without effect on promotion.

The harness is imported only where a phase names tasks (`evaluate.tasks`).
"""
