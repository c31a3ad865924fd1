"""Documents that roles apply: what is filled into their templates is JSON, so that no scalar changes its type."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEMPLATES = sorted(ROOT.glob("roles/*/templates/*.yaml.j2"))
WRITTEN = re.compile(r"\| (to_json|int) \}\}$")
RAW = {
    "{{ resource_groups }}",
    "{{ each | replace(mark, n) }}",
    "{{ kind }}",
    "{{ __attendees_label }}",
    "{{ source }}",
}
"""JSON already, documents already, and words of ours."""


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.relative_to(ROOT / "roles").as_posix())
def test_a_value_is_json_or_a_part_of_a_name_that_begins_with_letters(path: Path) -> None:
    text = re.sub(r"\{#.*?#\}", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    wrong = []
    for found in re.finditer(r"\{\{ .*? \}\}", text, re.DOTALL):
        before = re.search(r"[^\s\[{,]*$", text[: found.start()])
        assert before is not None
        glued = re.match(r'"?[a-z]+[-:]', before[0])
        if not (WRITTEN.search(found[0]) or glued or found[0] in RAW or "lookup(" in found[0]):
            wrong.append(found[0])
    assert wrong == []


def test_nothing_of_a_role_is_written_by_to_nice_yaml() -> None:
    """It writes the ciphertext of a vaulted value."""
    files = [*ROOT.glob("roles/**/*.yml"), *ROOT.glob("roles/**/*.j2"), *ROOT.glob("playbooks/*.yml")]
    assert [path for path in files if "to_nice_yaml" in path.read_text(encoding="utf-8")] == []
