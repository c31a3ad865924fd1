"""A run from start to report: launch.py checks and starts the ranks, worker.py is what each rank runs.

results.py decides and reports, with a stage's parent and overrides; manifest.py records what it ran on, tracker.py shows its progress,
verify_run.py and promote.py come after it.
"""
