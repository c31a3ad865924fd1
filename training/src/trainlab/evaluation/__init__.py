"""How models are judged: answers to held-out rows, facts in them, tasks of benchmarks, and whether a change is real."""
