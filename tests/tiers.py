"""When each slow test tier last passed, and which of the files that it covers changed since; recorded in tiers.yaml.

python tests/tiers.py passed TIER [JUNIT]
                                    as the last line of a tier: writes commit and date into tiers.yaml, which is then committed, unless
                                    the JUnit file has a skipped test (those that are pytest and nothing else do so by continuing.py)
python tests/tiers.py stale         one line for each tier whose files have changed since, and for old channels; `make test` prints it
"""

import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import yaml
from junit import counted

ROOT = Path(__file__).resolve().parents[1]
FILE = Path("tests") / "tiers.yaml"
RELEASES = Path("meta") / "releases.yml"
SHOWN, DAYS = 3, 90
"""Files of a line; days after which a channel of OpenShift AI has a newer head: it has one each month or two."""
HEAD = """\
---
# What each slow tier covers, and the commit on which it last passed; tiers.py writes `passed` and `date`, and reports stale tiers.
"""


class Indented(yaml.SafeDumper):
    """Writes lists as yamllint expects them."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent lists as well."""
        super().increase_indent(flow, False)


class Tiers:
    """The tiers of one checkout."""

    def __init__(self, root: Path = ROOT) -> None:
        """Read tiers.yaml."""
        self._root = root
        self.known: dict[str, dict[str, Any]] = yaml.safe_load((root / FILE).read_text(encoding="utf-8"))

    def passed(self, name: str) -> str:
        """Record that a tier passed on this commit, unless files that it covers differ from the commit."""
        if changed := self.changed(name, "HEAD"):
            return f"{name}: passed, but not noted: {shown(changed)} not committed"
        self.known[name]["passed"] = self._git("rev-parse", "HEAD")
        self.known[name]["date"] = datetime.now(UTC).date()
        text = HEAD + yaml.dump(self.known, Dumper=Indented, sort_keys=False, width=120)
        (self._root / FILE).write_text(text, encoding="utf-8")
        return f"{name}: passed; commit {FILE}"

    def stale(self) -> list[str]:
        """Return a line for each tier that has to run again."""
        result = []
        for name, tier in self.known.items():
            if not tier["passed"]:
                result.append(f"stale: make {name} has not passed yet")
            elif not self._git("cat-file", "-t", tier["passed"], missing=True):
                result.append(f"stale: make {name} passed on {tier['passed'][:8]}, which this clone does not have")
            elif changed := self.changed(name, tier["passed"]):
                result.append(f"stale: make {name} passed on {tier['passed'][:8]}; since then: {shown(changed)}")
        return result

    def changed(self, name: str, commit: str) -> list[str]:
        """Return the files that a tier covers and that differ from a commit or are untracked."""
        return self._differ(self._patterns(name), commit)

    def changed_files(self, patterns: list[str], commit: str) -> list[str] | None:
        """Return the files of some patterns that differ from a commit; None if this clone does not have it."""
        if not self._git("cat-file", "-t", commit, missing=True):
            return None
        return self._differ([f":(glob){pattern}" for pattern in patterns], commit)

    def covered(self, name: str) -> list[str]:
        """Return the files that a tier covers, untracked ones included."""
        found = self._git("ls-files", "--cached", "--others", "--exclude-standard", "--", *self._patterns(name))
        return sorted(found.split("\n"))

    def _differ(self, patterns: list[str], commit: str) -> list[str]:
        differ = self._git("diff", "--name-only", commit, "--", *patterns)
        new = self._git("ls-files", "--others", "--exclude-standard", "--", *patterns)
        return sorted({*differ.split("\n"), *new.split("\n")} - {""})

    def _patterns(self, name: str) -> list[str]:
        return [f":(glob){pattern}" for pattern in self.known[name]["covers"]]

    def _git(self, *arguments: str, missing: bool = False) -> str:
        command = ["git", "-C", str(self._root), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=not missing)
        return done.stdout.strip()


def shown(files: list[str]) -> str:
    """Return the first files, and how many more there are."""
    more = f" and {len(files) - SHOWN} more" if len(files) > SHOWN else ""
    return ", ".join(files[:SHOWN]) + more


def seen(root: Path) -> dict[str, date]:
    """Return, by release, the month as its first day in which the head of its channel was looked up."""
    table = yaml.safe_load((root / RELEASES).read_text(encoding="utf-8"))
    return {
        release: datetime.strptime(entry["seen"], "%B %Y").replace(tzinfo=UTC).date()
        for release, entry in table.items()
    }


def aged(root: Path, today: date) -> list[str]:
    """Return a line for each release of meta/releases.yml whose channel nobody has looked up for DAYS."""
    return [
        f"stale: {RELEASES} has the channel of {release} as of {month:%B %Y}; look it up again (CONTRIBUTING, Add a release)"
        for release, month in seen(root).items()
        if (today - month).days > DAYS
    ]


def stale() -> list[str]:
    """Return a line for each tier of this checkout that has to run again, and for old channels; one line when git cannot tell."""
    try:
        return [*Tiers().stale(), *aged(ROOT, datetime.now(UTC).date())]
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        return [f"stale tiers: git could not say: {error}"]


def main(arguments: list[str]) -> int:
    """Run the command line."""
    known = Tiers().known
    if len(arguments) >= 2 and arguments[0] == "passed" and arguments[1] in known:
        if skipped := counted(Path(file) for file in arguments[2:])["skipped"]:
            print(f"{arguments[1]}: not passed, {skipped} tests were skipped")
            return 1
        print(Tiers().passed(arguments[1]))
    elif arguments == ["stale"]:
        print("\n".join(stale()) or "no tier is stale")
    else:
        print(f"{__doc__}\nTIER is one of {', '.join(known)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
