"""A slow tier goes on where it stopped, and is noted when all of it has passed with the same files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiers

pytestmark = pytest.mark.rest
ONE, TWO, THREE = (f"code/test_{number}{'.py'}" for number in (1, 2, 3))
FIRST, SECOND = "def test_a(): ...\n", "def test_b(): ...\ndef test_c(): {}\n"
APART = """import pytest
@pytest.mark.apart
@pytest.mark.parametrize("release", ["twelve", "thirteen"])
def test_d(release): assert release != "{}"
"""


class Tier:
    """A repository whose tier test-vm covers its folder `code` and its tests."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("pytest.ini", "[pytest]\nmarkers = apart: x\n")
        self.write(str(tiers.FILE), "test-vm: {covers: ['code/**'], passed: null}\n")
        self.write(".gitignore", "artifacts/\n__pycache__/\n")
        self.git("init")

    def write(self, name: str, text: str) -> None:
        """Write a file."""
        (self.root / name).parent.mkdir(exist_ok=True)
        (self.root / name).write_text(text, encoding="utf-8")

    def module(self, name: str, text: str) -> None:
        """Write a file of tests."""
        self.write(f"code/{name}.py", text)

    def git(self, *arguments: str) -> None:
        """Run git."""
        who = ("-c", "user.name=x", "-c", "user.email=x@example.com")
        env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        subprocess.run(["git", "-C", str(self.root), *who, *arguments], check=True, capture_output=True, env=env)

    def commit(self) -> None:
        """Commit everything."""
        self.git("add", "--all")
        self.git("commit", "-m", "x")

    def run(self, code: int, *options: str, **more: str) -> tuple[list[str], str]:
        """Run the tier; return the tests that ran, and what was said."""
        env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "GIT_", "AGAIN"))}
        env |= {"PYTHONPATH": str(tiers.ROOT / "tests"), **more}
        argv = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "continuing"]
        argv += ["--tier", "test-vm", *options, "code"]
        done = subprocess.run(argv, cwd=self.root, env=env, check=False, capture_output=True, text=True)
        assert done.returncode == code, done.stdout + done.stderr
        ran = [line.split()[0] for line in done.stdout.splitlines() if line.endswith("%]")]
        return [name.rpartition("::")[2] for name in ran], done.stdout

    def noted(self) -> bool:
        """Tell whether tiers.yaml says that the tier passed."""
        return tiers.Tiers(self.root).stale() == []


@pytest.fixture
def tier(tmp_path: Path) -> Tier:
    one = Tier(tmp_path)
    one.module("test_1", FIRST)
    one.module("test_2", SECOND.format("assert False"))
    one.module("test_3", APART.format("twelve"))
    one.commit()
    return one


def test_files_that_passed_are_left_out_until_a_covered_file_changes(tier: Tier) -> None:
    assert tier.run(1)[0] == ["test_a", "test_b", "test_c", "test_d[twelve]", "test_d[thirteen]"]
    ran, said = tier.run(1)
    assert ran == ["test_b", "test_c", "test_d[twelve]"]
    assert f"passed with these files before (AGAIN=1 runs them again): {ONE}" in said
    assert f"goes on behind {ONE}, {THREE}[thirteen]" in said
    assert len(tier.run(1, AGAIN="1")[0]) == 5
    tier.write("other", "")
    assert len(tier.run(1)[0]) == 3
    tier.write("code/x", "")
    assert len(tier.run(1)[0]) == 5
    assert not tier.noted()


def test_noted_when_all_parts_passed_in_several_runs(tier: Tier) -> None:
    tier.module("test_2", "import os\n" + SECOND.format("assert 'BAD' not in os.environ"))
    tier.module("test_3", APART.format(""))
    tier.commit()
    tier.run(1, BAD="1")
    assert not tier.noted()
    ran, said = tier.run(0)
    assert ran == ["test_b", "test_c"] and f"test-vm: passed; commit {tiers.FILE}" in said
    assert tier.noted()
    ran, said = tier.run(0)
    assert ran == [] and "test-vm: passed" in said


def test_what_is_only_listed_has_not_passed(tier: Tier) -> None:
    assert "5 tests collected" in tier.run(0, "--collect-only")[1] and not tier.noted()


def test_killed_in_the_middle(tier: Tier) -> None:
    """What passed before the kill counts."""
    tier.module("test_2", "import os\n" + SECOND.format("os.kill(os.getpid(), 9)"))
    tier.run(-9)
    assert tier.run(-9)[0][0] == "test_b"


def test_a_chosen_part_is_not_the_tier(tier: Tier) -> None:
    tier.module("test_2", SECOND.format("..."))
    tier.module("test_3", APART.format(""))
    tier.commit()
    ran, said = tier.run(0, "-k", "test_b or thirteen")
    assert ran == ["test_b", "test_d[thirteen]"] and "not all of it, so not noted" in said and not tier.noted()
    assert tier.run(0)[0] == ["test_a", "test_b", "test_c", "test_d[twelve]"]
    assert tier.noted()


def test_what_was_skipped_has_not_passed(tier: Tier) -> None:
    tier.module("test_2", "import pytest\n" + SECOND.format("pytest.skip('missing tools: qemu')"))
    tier.module("test_3", APART.format(""))
    tier.commit()
    said = tier.run(1)[1]
    assert "test-vm: not passed, tests were skipped: Skipped: missing tools: qemu" in said and not tier.noted()
    assert tier.run(1)[0] == ["test_b", "test_c"]


def test_not_noted_with_changes_that_are_not_committed(tier: Tier) -> None:
    tier.module("test_2", SECOND.format("..."))
    tier.module("test_3", APART.format(""))
    assert f"test-vm: passed, but not noted: {TWO}, {THREE} not committed" in tier.run(0)[1]
    tier.commit()
    assert "test-vm: passed; commit" in tier.run(0)[1]
