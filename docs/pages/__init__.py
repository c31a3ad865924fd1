"""Pages that are written by programs: `make gen` writes each, and tests/contract/test_pages.py compares it with what is committed."""
