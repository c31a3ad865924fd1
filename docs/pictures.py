"""Takes the README's screenshots of a real run's report, light and dark; `make pictures` calls it after a `make demo`.

Needs Chromium (Debian: apt-get install chromium). Uses the newest survival run under artifacts/.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "pictures"
SIZE = (1000, 860)
"""Pixels: from the verdict to the clearest pairs."""
COLORS = 64
"""Palette size: text and bars need no more, and the files are a third of the size."""
SCHEMES = {"dark": 0, "light": 1}
"""Chromium's numbers, blink::mojom::PreferredColorScheme."""


def newest() -> Path:
    """Return the report of the newest run; raise SystemExit with the remedy if there is none."""
    found = sorted((ROOT / "artifacts").glob("survival-*/report.html"), key=lambda page: page.stat().st_mtime)
    if not found:
        raise SystemExit("error: artifacts/survival-*/report.html: no run found; `make demo` makes one")
    return found[-1]


def shoot(program: str, page: Path, scheme: str) -> Path:
    """Write a screenshot of the page in one color scheme and return its path."""
    target = FOLDER / f"report-{scheme}.png"
    with tempfile.TemporaryDirectory() as folder:
        taken = Path(folder) / "taken.png"
        command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [f"--user-data-dir={folder}/profile", f"--window-size={SIZE[0]},{SIZE[1]}"]
        command += [f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}", f"--screenshot={taken}", page.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not taken.exists():
            raise SystemExit(f"error: {program} took no screenshot of {page}: {done.stderr.strip()[-300:]}")
        Image.open(taken).convert("RGB").quantize(COLORS).save(target, optimize=True)
    return target


def main() -> None:
    """Take all screenshots."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        raise SystemExit("error: chromium: command not found; apt-get install chromium")
    FOLDER.mkdir(exist_ok=True)
    page = newest()
    for scheme in SCHEMES:
        target = shoot(program, page, scheme)
        print(f"{target.relative_to(ROOT)}: {target.stat().st_size // 1024} KiB, {page.parent.name}")


if __name__ == "__main__":
    sys.exit(main())
