"""What `make test` prints at its end: the table of its time, the stale tiers, what failed, and the counts as the last line."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import summary
import tiers
import timetable

CHECK = """<testsuites><testsuite name="pytest" errors="0" failures="{failed}" skipped="1" tests="5" time="75.5"
 timestamp="2026-11-22T10:01:00+00:00"><properties><property name="selected" value="5" /></properties>
<testcase classname="tests.api.test_a" name="one" time="61.0" /><testcase classname="tests.api.test_b" name="two" time="9"><properties><property name="cpu" value="7.5" /></properties></testcase>
<testcase classname="tests.api.test_molecule" name="m" time="40" /><testcase classname="tests.charts.test_c" name="three" time="30" /><testcase classname="training.tests.test_d" name="x" time="2" />
</testsuite></testsuites>"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as `make test` leaves it."""
    (tmp_path / timetable.TIMES).mkdir(parents=True)
    begin = 1795341600  # 2026-11-22T10:00:00Z
    for name, (first, last) in {"lint": (0, 50), "binaries": (10, 12), "cut": (70, 60)}.items():
        text = f"{begin + first}\ncpu  100 0 0 {first} 0 0 0 0 0 0\n"
        (tmp_path / timetable.TIMES / f"{name}.begin").write_text(text, encoding="ascii")
        (tmp_path / timetable.TIMES / f"{name}.end").write_text(str(begin + last), encoding="ascii")
    recorder = "import junit\ndef pytest_configure(config):\n    config.pluginmanager.register(junit.Recorder())\n"
    (tmp_path / "conftest.py").write_text(recorder, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tiers.ROOT / "tests"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tiers, "stale", lambda: ["stale: make x"])
    return tmp_path


@pytest.mark.parametrize(("failed", "code"), [(0, 0), (1, 1)])
def test_table_tiers_and_counts(place: Path, capsys: pytest.CaptureFixture[str], failed: int, code: int) -> None:
    (place / "check.xml").write_text(CHECK.format(failed=failed), encoding="utf-8")
    assert summary.main(["check.xml"]) == code
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == f"{4 - failed} passed, {failed} failed, 1 skipped"
    rows = {line[:24].strip(): " ".join(line[24:].split()) for line in said if " min " in line}
    assert list(rows) == ["lint", "binaries", "check", "tests/api", "molecule", "tests/charts", "training/tests", "all"]
    assert (rows["lint"], rows["tests/api"]) == ("0 min 50 s", "1 min 10 s 0 min 07 s of a processor in 2 tests")
    assert (rows["check"], rows["all"]) == ("1 min 15 s", "2 min 15 s")
    assert "stale: make x" in said
    assert "     8 s of a processor: tests.api.test_b::two" in said


def test_what_failed_is_named_right_above_the_counts(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever sees only the end of a long log knows which test to run again."""
    code = "import pytest\n@pytest.fixture\ndef bad():\n    raise OSError('gone')\ndef test_a(bad): ...\ndef test_b():\n    assert 1 == 2, 'two\\nlines'\n"
    file = (place / "test_x").with_suffix(".py")
    file.write_text(code, encoding="utf-8")
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=e2e.xml", file.name]
    subprocess.run(argv, cwd=place, check=False, capture_output=True)
    assert summary.main(["e2e.xml"]) == 1
    *_, first, second, counts = capsys.readouterr().out.splitlines()
    assert first == f'failed: test_x::test_a, {file.name}:4: OSError: failed on setup with "OSError: gone"'
    assert (
        second == f"failed: test_x::test_b, {file.name}:7: AssertionError: AssertionError: two | lines | assert 1 == 2"
    )
    assert counts == "0 passed, 2 failed, 0 skipped"


def test_time_given_to_other_machines_is_told(place: Path, tmp_path: Path) -> None:
    now = tmp_path / "stat"
    now.write_text("cpu  130 0 20 20 10 0 0 20 0 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n", encoding="ascii")
    told, _, speed = timetable.processors(place / timetable.TIMES, now).partition("; ")
    assert told == "processors: 0 CPU-seconds, 50% used, 30% idle, 20% given to other machines (steal)"
    assert re.fullmatch(r"\d+\.\d\d s for ten million additions in Python", speed)
    assert timetable.cpu_seconds(now) == 150 / os.sysconf("SC_CLK_TCK")


def test_a_part_that_did_not_run_is_named(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "check.xml").write_text(CHECK.format(failed=0), encoding="utf-8")
    assert summary.main(["check.xml", "e2e.xml"]) == 1
    assert capsys.readouterr().out.splitlines()[-2:] == ["e2e: did not run to its end", "4 passed, 0 failed, 1 skipped"]


@pytest.mark.parametrize(
    ("code", "more", "fault"),
    [
        (
            "import os, time\ndef test_a(): time.sleep(1); os._exit(9)\n",
            ("-n", "2"),
            "did not run to its end: 1 of 4 tests have a result",
        ),
        (
            "import os, signal\ndef test_a(): os.kill(os.getpid(), signal.SIGINT)\n",
            ("-n", "0"),
            "did not run to its end: 1 of 4 tests have a result",
        ),
        ("", ("-n", "0", "-k", "nothing"), "selected no test"),
    ],
    ids=["crash", "interruption", "none"],
)
def test_a_part_that_lost_tests_has_not_passed(
    place: Path, capfd: pytest.CaptureFixture[str], code: str, more: tuple[str, ...], fault: str
) -> None:
    """Not even where what failed passes alone: the others of a worker that crashed have no result."""
    code += "".join(f"def test_{name}(): ...\n" for name in ("b", "c", "d"))
    (place / "test_z.py").write_text(code, encoding="utf-8")
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--junitxml=check.xml",
        "--max-worker-restart=0",
    ]
    argv += ["--dist", "loadfile", *more, "test_z.py"]
    subprocess.run(argv, check=False, capture_output=True, timeout=120)
    assert summary.main(["check.xml"]) == 1
    assert f"check: {fault}" in capfd.readouterr().out.splitlines()


def test_stages_of_another_day_are_not_in_the_table(place: Path) -> None:
    assert list(timetable.stages(place / timetable.TIMES)) == ["lint", "binaries"]
    (place / timetable.TIMES / "run.begin").write_text("1795341608\ncpu 0\n", encoding="ascii")
    assert list(timetable.stages(place / timetable.TIMES)) == ["binaries"]


def test_a_tier_with_skipped_tests_is_not_noted(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "rest.xml").write_text(CHECK.format(failed=0), encoding="utf-8")
    assert tiers.main(["passed", "test-api", "rest.xml"]) == 1
    assert capsys.readouterr().out == "test-api: not passed, 1 tests were skipped\n"


def test_a_tier_is_stale_once_what_it_covers_changes(tmp_path: Path) -> None:
    """Not recorded while changes are uncommitted, not stale through other files, stale through new and changed ones."""

    def git(*arguments: str) -> None:
        who = ("-c", "user.name=x", "-c", "user.email=x@example.com")
        subprocess.run(["git", "-C", str(tmp_path), *who, *arguments], check=True, capture_output=True, env=clean)

    clean = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    (tmp_path / "tests").mkdir()
    (tmp_path / tiers.FILE).write_text("test-vm: {covers: ['cluster/**'], passed: null}\n", encoding="utf-8")
    (tmp_path / "cluster").mkdir()
    code = tmp_path / "cluster" / "a.py"
    code.write_text("1", encoding="utf-8")
    git("init")
    git("add", "--all")
    git("commit", "-m", "one")
    assert tiers.Tiers(tmp_path).stale() == ["stale: make test-vm has not passed yet"]
    code.write_text("2", encoding="utf-8")
    assert "not noted: cluster/a.py" in tiers.Tiers(tmp_path).passed("test-vm")
    git("commit", "-am", "two")
    assert tiers.Tiers(tmp_path).passed("test-vm") == f"test-vm: passed; commit {tiers.FILE}"
    (tmp_path / "other").write_text("", encoding="utf-8")
    assert tiers.Tiers(tmp_path).stale() == []
    (tmp_path / "cluster" / "b.py").write_text("", encoding="utf-8")
    assert tiers.Tiers(tmp_path).stale()[0].endswith("; since then: cluster/b.py")


def test_patterns_of_tiers_find_files() -> None:
    """A pattern that matches nothing would never be stale."""
    targets = (tiers.ROOT / "Makefile").read_text(encoding="utf-8")
    known = {name: tier["covers"] for name, tier in tiers.Tiers().known.items()}
    for name, patterns in known.items():
        assert f"\n{name}:" in targets, "a row of a target that is gone"
        for pattern in patterns:
            command = ["git", "-C", str(tiers.ROOT), "ls-files", "--", f":(glob){pattern}"]
            assert subprocess.run(command, capture_output=True, check=True).stdout, f"{name}: {pattern}"


@pytest.mark.parametrize(("drills", "noted"), [("", True), ("DRILLS=100", True), ("DRILLS=10", False)])
def test_only_all_drills_pass_as_their_tier(drills: str, noted: bool) -> None:
    argv = ["make", "--dry-run", "test-drills", *drills.split()]
    done = subprocess.run(argv, cwd=tiers.ROOT, check=True, capture_output=True, text=True)
    assert ("tiers.py passed test-drills" in done.stdout) is noted


def test_a_test_that_fails_by_accident_is_flaky_and_one_that_fails_twice_has_failed(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The first fails where no earlier run of it has left a file."""
    code = """
        from pathlib import Path
        def test_first():
            seen = Path("seen").exists()
            Path("seen").touch()
            assert seen, "too early"
        class TestB:
            def test_always(self):
                assert 1 == 2
    """
    (place / "test_y.py").write_text(textwrap.dedent(code), encoding="utf-8")
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=check.xml", "test_y.py"]
    subprocess.run(argv, cwd=place, check=False, capture_output=True)
    assert summary.main(["check.xml"]) == 1
    *_, flaky, bad, counts = capfd.readouterr().out.splitlines()
    assert re.fullmatch(r"flaky: passed alone in \d+ s, failed before: test_y::test_first, .*too early.*", flaky)
    assert bad.startswith("failed: test_y.TestB::test_always, ")
    assert counts == "1 passed, 1 failed, 0 skipped"
    assert summary.main(["check.xml"]) == 1
    assert flaky in (lines := capfd.readouterr().out.splitlines()), "judged once"
    assert not any(line.endswith("test_first") for line in lines if line.startswith("once more")), "not run again"
