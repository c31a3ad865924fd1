"""Whether requests to a server go through the machine's proxy; called by the clients of served models."""


def asked(url: str) -> bool:
    """Whether httpx may use the environment's proxy for `url`; httpx ignores subnets in NO_PROXY, requests does not."""
    from requests.utils import should_bypass_proxies

    return not should_bypass_proxies(url, no_proxy=None)
