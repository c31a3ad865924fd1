"""What `make test` prints at its end: where its time went, which slow tiers are stale, what failed, `N passed, N failed, N skipped`.

    python tests/summary.py artifacts/check.xml artifacts/api.xml artifacts/e2e.xml

A missing file means a part that did not run to its end: exit 1, as after a failure.
"""

import sys
from pathlib import Path

import tiers
import timetable
from junit import counted, failed


def main(names: list[str]) -> int:
    """Print all four; the counts are the last line."""
    files = [Path(name) for name in names]
    there = [file for file in files if file.exists()]
    for line in (*timetable.lines(there), "", *tiers.stale(), "", *failed(there)):
        print(line)
    for file in files:
        if file not in there:
            print(f"{file.stem}: did not run to its end")
    total = counted(there)
    bad = total["failures"] + total["errors"]
    print(f"{total['tests'] - bad - total['skipped']} passed, {bad} failed, {total['skipped']} skipped")
    return 1 if bad or len(there) < len(files) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
