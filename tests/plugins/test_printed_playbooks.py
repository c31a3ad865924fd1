"""plugins/plugin_utils/playbooks.py: a printed command works in the folder in which it was printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible import constants, context
from ansible_collections.trainlab.rhoai.plugins.plugin_utils import playbooks

ROOT = Path(__file__).resolve().parents[2]
USUAL = str(ROOT / "inventory" / "local")


@pytest.mark.parametrize(
    ("inventories", "checkout", "elsewhere"),
    [
        ([], "", ""),
        ([USUAL], "", ""),
        ([str(ROOT / "inventory" / "openshift")], "-i inventory/openshift ", f"-i {ROOT / 'inventory' / 'openshift'} "),
        (["a,b", "/my lab/hosts"], "-i a,b -i '/my lab/hosts' ", "-i a,b -i '/my lab/hosts' "),
    ],
)
def test_it_names_the_playbook_and_the_inventory_in_use(
    inventories: list[str], checkout: str, elsewhere: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the file in a checkout, by its name elsewhere: also beside a playbook of that name that is somebody else's."""
    monkeypatch.setattr(constants, "DEFAULT_HOST_LIST", [USUAL])
    monkeypatch.setattr(context, "CLIARGS", {"inventory": tuple(inventories)})
    monkeypatch.chdir(ROOT)
    assert playbooks.words("attendees") == f"{checkout}playbooks/attendees.yml"
    assert playbooks.embedded_words() == "playbooks/local.yml"
    (tmp_path / "playbooks").mkdir()
    (tmp_path / "playbooks" / "attendees.yml").write_text("[]")
    monkeypatch.chdir(tmp_path)
    assert playbooks.words("attendees") == f"{elsewhere}trainlab.rhoai.attendees"
    assert playbooks.embedded_words() == f"-i {USUAL} trainlab.rhoai.local"
