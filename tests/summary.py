"""What `make test` prints at its end: where its time went, which slow tiers are stale, what failed, `N passed, N failed, N skipped`.

    python tests/summary.py artifacts/check.xml artifacts/api.xml artifacts/e2e.xml artifacts/times/lint-rest.end

A missing file means a part that did not run to its end, as does one with fewer results than tests were selected: exit 1, as after a
failure. Results of tests are those named .xml. A test that failed is run once more, alone; where it passes then it is told as
flaky, with what it said, and has not failed. Not those that share the embedded cluster's one demo, not after many failures, which
are no accident, and not those that an earlier summary of the same run (artifacts/flaky.json) has seen pass.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import tiers
import timetable
from junit import Failure, counted, failed, unfinished

MAX_RERUNS = 5
SECONDS_AGAIN = 900
SHARED = "tests/e2e/"
FLAKY = Path("artifacts") / "flaky.json"
"""The tests that failed and then passed alone, with the line that says so; removed where a run begins."""


def main(names: list[str]) -> int:
    """Print all four; the counts are the last line."""
    files = [Path(name) for name in names]
    missing = [file for file in files if not file.exists()]
    there = [file for file in files if file.suffix == ".xml" and file not in missing]
    failures = failed(there)
    flaky = again(failures)
    for line in (*timetable.lines(there), "", *tiers.stale(), "", *flaky.values()):
        print(line)
    for failure in failures:
        if failure not in flaky:
            print(f"failed: {failure.line}")
    ended = {file: "did not run to its end" if file in missing else unfinished(file) for file in (*missing, *there)}
    for file, fault in ended.items():
        if fault:
            print(f"{file.stem}: {fault}")
    total = counted(there)
    bad = total["failures"] + total["errors"] - len(flaky)
    print(f"{total['tests'] - bad - total['skipped']} passed, {bad} failed, {total['skipped']} skipped")
    return 1 if bad or any(ended.values()) else 0


def again(failures: list[Failure]) -> dict[Failure, str]:
    """Run tests that failed once more, each alone, and return a line for each that passed then."""
    seen: dict[str, str] = json.loads(FLAKY.read_text(encoding="utf-8")) if FLAKY.exists() else {}
    # one that fails, and then in its end, too, is one test
    by_test = {each.nodeid: each for each in failures if each.nodeid not in seen}
    for failure in by_test.values() if len(by_test) <= MAX_RERUNS else ():
        if not failure.nodeid or failure.nodeid.startswith(SHARED):
            continue
        print(f"once more, alone: {failure.nodeid}", flush=True)
        began = time.monotonic()
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", failure.nodeid]
        env = {name: value for name, value in os.environ.items() if name != "UNTIL"}  # behind which it would be skipped
        try:
            done = subprocess.run(command, check=False, timeout=SECONDS_AGAIN, stdin=subprocess.DEVNULL, env=env)
        except subprocess.TimeoutExpired:
            continue
        if done.returncode == 0:
            seen[failure.nodeid] = f"flaky: passed alone in {time.monotonic() - began:.0f} s, failed before: "
            FLAKY.parent.mkdir(exist_ok=True)
            FLAKY.write_text(json.dumps(seen), encoding="utf-8")
    return {each: seen[each.nodeid] + each.line for each in failures if each.nodeid in seen}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
