"""Prints one line for several JUnit files: `N passed, N failed, N skipped`; exit 1 when something failed."""

import sys
import xml.etree.ElementTree as ElementTree


def main(files: list[str]) -> int:
    """Sums the attributes of every test suite of the files."""
    total = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    for file in files:
        for suite in ElementTree.parse(file).getroot().iter("testsuite"):
            for key in total:
                total[key] += int(suite.get(key, "0"))
    failed = total["failures"] + total["errors"]
    print(f"{total['tests'] - failed - total['skipped']} passed, {failed} failed, {total['skipped']} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
