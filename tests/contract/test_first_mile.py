"""What a stranger types is what CI runs: the README's commands, its line of needs, and the proxies of a machine."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
sys.path.insert(0, str(ROOT / "cluster" / "lab"))
PROXY = "http://proxy.example:3128"


def test_ci_runs_the_command_of_the_readme() -> None:
    """.ci/run changes to the checkout and runs `make test`; what that needs it installs or names itself."""
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    said = [word.strip() for line in lines for word in re.split(r"&&|;", line)]
    rest = [one for one in said if not re.fullmatch(r'set -[a-z]+( pipefail)?|cd "\$\(dirname "\$0"\)/\.\."', one)]
    assert rest in (["make test"], ["exec make test"])
    assert "$ make test" in README


def test_readme_has_one_line_of_needs() -> None:
    """The fresh machines of tests/fresh get exactly these packages."""
    found = re.findall(r"apt-get install --no-install-recommends ([a-z0-9 .+-]+)", README)
    assert found == ["git make python3 ca-certificates curl"]


def test_no_proxy_where_there_is_none() -> None:
    import proxies

    assert proxies.environment({"PATH": "/usr/bin", "no_proxy": "intranet.example"}) == {}


@pytest.mark.parametrize("name", ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"])
def test_the_clusters_addresses_are_not_asked_of_a_proxy(name: str) -> None:
    """Both spellings, what was there before, this machine, the cluster's names and all of its subnets."""
    import identity
    import proxies

    found = proxies.environment({name: PROXY, "NO_PROXY": "intranet.example"})
    assert set(found) == {"no_proxy", "NO_PROXY"}
    assert found["no_proxy"] == found["NO_PROXY"]
    words = found["no_proxy"].split(",")
    assert {"intranet.example", "localhost", "127.0.0.1", ".svc", ".cluster.local"} <= set(words)
    assert {str(one) for one in (identity.NODES, identity.PODS, identity.SERVICES)} <= set(words)
    assert len(words) == len(set(words))
    assert proxies.environment({name: PROXY, **found}) == found
