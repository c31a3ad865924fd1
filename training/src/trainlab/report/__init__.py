"""The report of a run: a recipe collects rows (words.py, answer_report.py), charts.py draws, page.html.j2 shows.

Written by run/results.py: report.json and one self-contained report.html.
"""
