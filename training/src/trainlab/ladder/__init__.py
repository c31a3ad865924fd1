"""The evaluation ladder: tasks of lm-evaluation-harness before and after training, told beside the gate, which they do not decide.

The harness is imported only where a phase names tasks (`evaluate.tasks`).
"""
