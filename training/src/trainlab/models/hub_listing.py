"""What a fetch of an `hf:` model takes, as the hub lists it; used by the planner.

Without the hub's own client, which is not where the playbooks run.
"""

import os
from collections.abc import Mapping

import httpx

from trainlab.errors import UserError
from trainlab.models import chat_template, stored_weights

ENDPOINT = "https://huggingface.co"
SECONDS = 10


def files_of(source: str) -> tuple[stored_weights.Chosen, str | None]:
    """Return the files, with their bytes, that `trainlab fetch` takes of `hf:OWNER/NAME@REVISION`, and its chat template, if any.

    HF_ENDPOINT and HF_TOKEN count as for the fetch. Raises UserError where the hub does not list them, or has no weights.
    """
    name, revision = source.removeprefix("hf:").split("@")
    endpoint = (os.environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")
    token = os.environ.get("HF_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with httpx.Client(headers=headers, timeout=SECONDS, follow_redirects=True) as client:

            def file(path: str) -> httpx.Response:
                return client.get(f"{endpoint}/{name}/resolve/{revision}/{path}").raise_for_status()

            def parts(index: str) -> list[str]:
                return stored_weights.parts_of(file(index).json(), index)

            listed = _listed(client, f"{endpoint}/api/models/{name}/tree/{revision}?recursive=true")

            own = file(chat_template.OWN_FILE).text if chat_template.OWN_FILE in listed else None
            config = file(chat_template.CONFIG_FILE).json() if chat_template.CONFIG_FILE in listed else {}
            return stored_weights.choose(listed, parts), chat_template.stored(own, config)
    except UserError as error:
        raise UserError(f"phase.model.source is {source}: {error}") from None
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        status = error.response.status_code if isinstance(error, httpx.HTTPStatusError) else None
        why = f"it answers {status}" if status else f"{type(error).__name__}: {error}"
        remedy = "accept its license and set HF_TOKEN, " if status in (401, 403, 404) else ""
        raise UserError(
            f"--hub: {endpoint} does not list {name} at {revision} ({why}); {remedy}name a mirror with HF_ENDPOINT, or plan without "
            "--hub, which assumes 2 bytes a weight"
        ) from None


def _listed(client: httpx.Client, url: str) -> Mapping[str, int]:
    """Return path and bytes of each file of all pages."""
    found: dict[str, int] = {}
    while url:
        answer = client.get(url).raise_for_status()
        found |= {one["path"]: int(one["size"]) for one in answer.json() if one["type"] == "file"}
        url = answer.links.get("next", {}).get("url", "")
    return found
