"""The room: visitors compare models, teach one fact each by phone, and ask what one job has trained; no torch.

Pages are rendered here and swapped in by htmx; progress and answers are streams. app.py puts it together.
"""
