"""The roles document their variables, and none of them knows what is trained."""

import functools
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from trainlab.config.methods import AnswerTrain, Unfreeze

ROOT = Path(__file__).resolve().parents[2]
ROLES = sorted(path for path in (ROOT / "roles").iterdir() if (path / "tasks").is_dir())
# Words that also mean something else (`layers` of an image, `checkpoints` on a volume) are left out.
HYPER_PARAMETERS = [name for block in (AnswerTrain, Unfreeze) for name in block.model_fields if "_" in name] + [
    "epochs"
]
FACTS = {"image_ref", "room_result", "serve_result", "train_run", "trainlab_resolved"}
"""What roles pass to each other and to the play after them."""
EACH = pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)


@functools.cache
def points(role: Path) -> dict[str, dict[str, Any]]:
    """Return the entry points of a role, as its argument_specs.yml describes them."""
    file = role / "meta" / "argument_specs.yml"
    assert file.exists(), f"{file.relative_to(ROOT)} is missing: describe the role's variables there"
    specs: dict[str, dict[str, Any]] = yaml.safe_load(file.read_text(encoding="utf-8"))["argument_specs"]
    return specs


def options(role: Path, point: str = "main") -> dict[str, dict[str, Any]]:
    """Return the documented variables of an entry point."""
    return points(role)[point].get("options") or {}


@functools.cache
def defaults(role: Path) -> dict[str, Any]:
    """Return the role's defaults."""
    file = role / "defaults" / "main.yml"
    return (yaml.safe_load(file.read_text(encoding="utf-8")) or {}) if file.exists() else {}


@EACH
def test_described_and_default_variables_are_the_same(role: Path) -> None:
    required = {name for name, option in options(role).items() if option.get("required")}
    without = {name for name, option in options(role).items() if "default" not in option}
    assert set(defaults(role)) | required | without == set(options(role))
    assert not set(defaults(role)) & required, "a required variable has a default"
    for name, option in options(role).items():
        if "default" in option:
            assert name in defaults(role), f"{name}: described with a default that defaults/main.yml lacks"
            assert option["default"] == defaults(role)[name], f"{name}: described with another default than it has"


@EACH
def test_every_variable_has_a_description_and_the_role_as_prefix(role: Path) -> None:
    for name, option in options(role).items():
        assert option.get("description"), name
        assert option.get("type"), name
        assert name.startswith((f"{role.name}_", "trainlab_")), name


@EACH
def test_the_readme_says_what_the_role_does_and_shows_a_play(role: Path) -> None:
    """Purpose in one sentence, a play that calls the role, and where its variables are documented."""
    text = (role / "README.md").read_text(encoding="utf-8")
    title, purpose = text.split("\n\n")[:2]
    assert title == f"# {role.name}" and re.fullmatch(r"[A-Z][^\n]+\.", purpose)
    assert f"`ansible-doc -t role trainlab.rhoai.{role.name}`" in text
    (example,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (play,) = yaml.safe_load(example)
    called = play.get("roles") or [task.get("ansible.builtin.include_role", {}) for task in play["tasks"]]
    assert f"trainlab.rhoai.{role.name}" in [each.get("role") or each.get("name") for each in called]


@EACH
def test_the_readme_sets_variables_of_the_role_and_shared_ones_only(role: Path) -> None:
    text = (role / "README.md").read_text(encoding="utf-8")
    known = set(options(role)) | set(options(ROOT / "roles" / "phase"))
    (play,) = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[0])
    steps = [play, *play.get("roles", []), *play.get("tasks", [])]
    given = {name for step in steps for name in step.get("vars", {})}
    assert given and given <= known, sorted(given - known)


@EACH
def test_the_readme_names_described_variables_only(role: Path) -> None:
    text = (role / "README.md").read_text(encoding="utf-8")
    names = {each.name for each in ROLES}
    prefixes = "|".join(sorted({*names, "trainlab"}, key=len, reverse=True))
    named = set(re.findall(rf"(?<![\w./-])(?:{prefixes})_[a-z_]+\b", text)) - names
    assert named <= {name for each in ROLES for point in points(each) for name in options(each, point)} | FACTS


PLAYED = sorted(path for part in ("playbooks", "inventory") for path in (ROOT / part).rglob("*.yml"))
READ = sorted(path for role in ROLES for path in role.rglob("*") if path.suffix in (".yml", ".j2")) + PLAYED
READ = [path for path in READ if path.parent.name not in ("defaults", "meta")]
WITHOUT_SPEC = {"bool": {"teardown_volumes"}, "int": set[str](), "list": set[str]()}
"""Variables that only a playbook reads."""
TOLD = ("#", "fail_msg:", "text:")


def read_of(kind: str, *filters: str) -> list[str]:
    """Return the lines that use a variable of this type without one of these filters: a string from the command line.

    A variable that is only passed on or printed is converted where it is used, by a module's spec among others.
    """
    names = {name for each in ROLES for name, option in options(each).items() if option["type"] == kind}
    name = rf"\b(?:{'|'.join(sorted(names | WITHOUT_SPEC[kind]))})\b"
    good = rf" \| (?:default\([^)]*\) \| )?(?:{'|'.join(filters)})\b"
    passed = {
        "bool": rf'\w+: (?:"\{{\{{ {name} \}}\}}"|true|false)',
        "int": rf"\{{\{{ {name} \}}\}}",
        # a word looked for, which the string contains as well; named in a sentence
        "list": rf"'\w+' (?:not )?in {name}" rf'|^(?:msg: ")?{name}(?:, \w+:| is empty:)',
    }[kind]
    result = []
    for file in READ:
        whole = rf'|\w+: "\{{\{{ {name} \}}\}}"' if kind == "list" and file.parent.name == "tasks" else ""
        for line in file.read_text(encoding="utf-8").splitlines():
            code = line.strip()
            if not code.startswith(TOLD) and re.search(rf"{name}(?!{good}|[:=])", re.sub(passed + whole, "", code)):
                result.append(f"{file.relative_to(ROOT)}: {code}")
    return result


def test_a_boolean_may_come_from_the_command_line() -> None:
    """`-e workspace_access=false` is a string, and true."""
    assert read_of("bool", "bool") == []


def test_a_number_may_come_from_the_command_line() -> None:
    """`-e train_timeout=0` is a string, and true."""
    assert read_of("int", "int", "string") == []


def test_a_list_may_come_from_the_command_line() -> None:
    """`-e workspace_users=ada,grace` is a string, and a list of letters to a loop."""
    assert read_of("list", "length", r"trainlab\.rhoai\.listed") == []


CONNECTING = sorted(
    path.stem
    for path in (ROOT / "plugins" / "modules").glob("*.py")
    if "trainlab.rhoai.cluster" in path.read_text("utf-8")
)
"""Our modules that take a kubeconfig."""


def tasks_in(document: Any) -> list[dict[str, Any]]:
    """Return the tasks of a file, those in blocks as well."""
    result: list[dict[str, Any]] = []
    for each in document if isinstance(document, list) else []:
        result.append(each)
        for part in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks", "handlers"):
            result += tasks_in(each.get(part))
    return result


def test_every_task_connects_alike() -> None:
    """With the kubeconfig and the context of role phase; Helm gets them, and more, from its environment."""
    asked = 0
    for file in READ:
        if file.suffix != ".yml" or "molecule" in file.parts:
            continue
        for task in tasks_in(yaml.safe_load(file.read_text(encoding="utf-8"))):
            for module, arguments in task.items():
                where = f"{file.relative_to(ROOT)}: {task.get('name')}"
                if module == "ansible.builtin.command":
                    asked += 1
                    assert task["environment"] == "{{ __phase_helm_environment }}", where
                    assert not {"kubeconfig", "context", "host"} & set(arguments), where
                elif module == "kubernetes.core.k8s_exec":  # the others have one client, which sends a request again
                    asked += 1
                    assert arguments["kubeconfig"] == "{{ __phase_kubeconfig | default(omit, true) }}", where
                    assert arguments["context"] == "{{ trainlab_kube_context | default(omit, true) }}", where
                elif module.removeprefix("trainlab.rhoai.") in CONNECTING:
                    asked += 1  # their default is the role's variables
                    assert not {"kubeconfig", "kube_context"} & set(arguments), where
                else:
                    assert not module.startswith(("kubernetes.", "community.okd", "redhat.openshift")), where
    assert asked > 40


def test_module_defaults_reach_every_module_that_connects() -> None:
    """`module_defaults: {group/trainlab.rhoai.trainlab: {kube_context: ...}}` in a play of one's own."""
    group = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text(encoding="utf-8"))["action_groups"]["trainlab"]
    assert group == CONNECTING


@EACH
def test_no_task_knows_a_hyper_parameter(role: Path) -> None:
    words = re.compile(rf"\b({'|'.join(HYPER_PARAMETERS)})\b")
    for file in sorted(role.rglob("*")):
        if file.is_file() and file.suffix in (".yml", ".yaml", ".j2"):
            match = words.search(file.read_text(encoding="utf-8"))
            assert not match, (
                f"{file.relative_to(ROOT)} names {match and match[0]}: it belongs into values/<phase>.yaml"
            )
