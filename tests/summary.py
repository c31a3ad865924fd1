"""What `make test` prints at its end: where its time went, which slow tiers are stale, `N passed, N failed, N skipped`.

    python tests/summary.py artifacts/check.xml artifacts/api.xml artifacts/e2e.xml

A missing file means a part that did not run to its end: exit 1, as after a failure.
"""

import sys
from pathlib import Path

import tiers
import timetable
from junit import counted


def main(names: list[str]) -> int:
    """Print all three; the counts are the last line."""
    files = [Path(name) for name in names]
    there = [file for file in files if file.exists()]
    for line in (*timetable.lines(there), "", *tiers.stale(), ""):
        print(line)
    for file in files:
        if file not in there:
            print(f"{file.stem}: did not run to its end")
    total = counted(there)
    failed = total["failures"] + total["errors"]
    print(f"{total['tests'] - failed - total['skipped']} passed, {failed} failed, {total['skipped']} skipped")
    return 1 if failed or len(there) < len(files) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
