"""A run from start to report: launch.py checks and starts the ranks, worker.py is what each rank runs.

results.py decides and reports, stage_gate.py adds a stage's parent and overrides, manifest.py records what it ran on, tracker.py and
watch.py show its progress, verify_run.py and promote.py come after it.
"""
