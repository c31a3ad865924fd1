"""What a GitOps controller does with the chart, on the demo's cluster: rendered without a cluster, applied server-side, and again."""

import pytest

from e2e.commands import helm, kubectl, objects
from e2e.release import NAME, Release, given

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]
SPACE = "gitops"
MADE = "pytorchjobs,jobs,configmaps,persistentvolumeclaims,roles,rolebindings,serviceaccounts"


@pytest.mark.tier
def test_applied_again_it_trains_nothing_and_serves_the_same(demo: str) -> None:
    """Where there is no cluster to look up, the values say what it is."""
    known = ("--set", "site.platform=kubernetes,site.trainingApi=pytorchjob")
    rendered = helm("template", NAME, "charts/trainjob", "-n", SPACE, "--no-hooks", *given(), *known)
    apply = ("-n", SPACE, "apply", "--server-side", "--field-manager=gitops", "-f", "-")
    release = Release("helm", SPACE)
    kubectl("create", "namespace", SPACE)
    try:
        kubectl(*apply, given=rendered)
        assert "not promoted" not in release.decided()
        before, answers = made(), release.answers()
        kubectl(*apply, given=rendered)
        assert "not promoted" not in release.decided()
        assert (made(), release.answers()) == (before, answers)
    finally:
        kubectl("delete", "namespace", SPACE, "--timeout=300s")


def made() -> dict[str, tuple[str, int]]:
    """Which objects these are, and how often their content was changed."""
    return {
        f"{one['kind']}/{one['metadata']['name']}": (one["metadata"]["uid"], one["metadata"].get("generation", 0))
        for one in objects(MADE, SPACE)
    }
