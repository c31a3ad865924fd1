"""A run from its start to its report: launch.py checks and starts the ranks, worker.py is what each of them does.

results.py decides and reports, stage_gate.py adds what a stage asks, manifest.py says what it ran on, tracker.py and watch.py
show where it stands, verify_run.py and promote.py come after it.
"""
