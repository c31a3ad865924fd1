"""A proxy of the machine is not asked for the cluster's addresses."""

import pytest
from embedded_cluster.nodes import proxies
from requests.utils import should_bypass_proxies

PROXY = "http://proxy.example:3128"


def test_nothing_is_set_without_a_proxy() -> None:
    assert proxies.environment({"NO_PROXY": "kept.example"}) == {}


@pytest.mark.parametrize("name", ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"])
def test_the_clusters_addresses_join_what_was_there(name: str) -> None:
    """Both spellings of both variables; a second time nothing changes."""
    given = {name: PROXY, "no_proxy": "a.example, b.example", "NO_PROXY": "c.example"}
    found = proxies.environment(given)
    assert found.keys() == {"no_proxy", "NO_PROXY"} and found["no_proxy"] == found["NO_PROXY"]
    assert found["no_proxy"].startswith("a.example,b.example,c.example,localhost,127.0.0.1,.svc,.cluster.local,")
    assert proxies.environment({**given, **found}) == found


def test_clients_that_read_subnets_go_straight_to_nodes_pods_and_services() -> None:
    kept = proxies.environment({"HTTP_PROXY": PROXY})["NO_PROXY"]
    for address in ("10.246.0.11", "10.245.3.7", "10.243.135.220", "127.0.0.1", "tuned.demo.svc.cluster.local"):
        assert should_bypass_proxies(f"http://{address}:80/v1/models", no_proxy=kept), address
    assert not should_bypass_proxies("https://pypi.example/simple", no_proxy=kept)
