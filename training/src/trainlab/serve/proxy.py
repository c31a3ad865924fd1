"""Whether a server is asked by way of the machine's proxy; called by the clients of served models."""


def asked(url: str) -> bool:
    """Whether httpx may take the proxy of the environment for `url`; it reads no subnets in NO_PROXY, requests does."""
    from requests.utils import should_bypass_proxies

    return not should_bypass_proxies(url, no_proxy=None)
