"""The pages mention only what exists, lead somewhere, are short, and their commands work where they are pasted."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
OPERATE = [
    *sorted((DOCS / "operate").glob("*.md")),
    DOCS / "start" / "openshift.md",
    DOCS / "evidence" / "openshift-stand-ins.md",
]
PAGE = "\n".join(path.read_text(encoding="utf-8") for path in OPERATE)
"""What is said about OpenShift."""
TOOLS = re.compile(r"^(ansible-playbook|ansible-builder|ansible-galaxy|trainlab|molecule)\b", re.MULTILINE)
"""Programs of the environment, which a fresh shell does not find."""
ACTIVATES = ". .venv/bin/activate"
OPENSHIFT = ROOT / "inventory" / "openshift" / "group_vars" / "all.yml"
RELEASES: dict[str, Any] = yaml.safe_load((ROOT / "meta" / "releases.yml").read_text(encoding="utf-8"))
TESTED = [release for release, entry in RELEASES.items() if not entry.get("prepared")]


def load(path: Path) -> Any:
    """Return the content of a YAML file."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def described() -> dict[str, Any]:
    """Return each variable of the roles with its default."""
    result: dict[str, Any] = {}
    for specs in sorted(ROOT.glob("roles/*/meta/argument_specs.yml")):
        options = load(specs)["argument_specs"]["main"].get("options") or {}
        result |= {name: option.get("default") for name, option in options.items()}
    return result


def test_variables_exist() -> None:
    """Each name with the prefix of a role is a documented variable; and so is each that they share."""
    known = described()
    prefixes = "|".join(sorted(path.name for path in (ROOT / "roles").iterdir()))
    named = set(re.findall(rf"(?<![\w./-])(?:{prefixes})_[a-z_]+\b(?!\.yml)", PAGE)) - {"ocp4_workload_trainlab"}
    assert len(named) > 20
    assert named <= set(known), f"not in any argument_specs.yml: {sorted(named - set(known))}"
    shared = set(re.findall(r"(?<![\w./-])trainlab_[a-z]+\b", PAGE))
    assert shared <= set(known), shared


def test_variables_of_playbooks_exist() -> None:
    """A variable that a command sets with -e and that is not a role's is read by its playbook or the inventory."""
    known = set(described())
    commands = re.findall(r"^(?:\$ )?ansible-playbook (.*?)(?:\s+#.*)?$", PAGE, re.MULTILINE)
    assert len(commands) > 20
    for command in commands:
        (name,) = re.findall(r"playbooks/(\w+)\.yml|trainlab\.rhoai\.(\w+)", command)
        playbook = ROOT / "playbooks" / f"{''.join(name)}.yml"
        (inventory,) = re.findall(r"-i (\S+)", command)
        assert playbook.is_file() and (ROOT / inventory).is_dir(), command
        reads = (
            playbook.read_text(encoding="utf-8")
            + OPENSHIFT.read_text(encoding="utf-8")
            + "".join(map(str, described().values()))
        )
        for variable in re.findall(r"-e (\w+)=", command):
            assert variable in known or re.search(rf"\b{variable}\b", reads), f"{variable}: {command}"


def test_files_exist() -> None:
    """Playbooks, folders and links that the page mentions."""
    for name in re.findall(r"`(?:playbooks/)?(\w+\.yml)`", PAGE):
        assert (ROOT / "playbooks" / name).is_file(), name
    for name in re.findall(r"\b((?:inventory|images|values|charts)/[\w./-]*\w)", PAGE):
        assert (ROOT / name).exists(), name
    version = load(ROOT / "galaxy.yml")["version"]
    assert set(re.findall(r"trainlab-rhoai-([\d.]+)\.tar\.gz", PAGE)) == {version}
    install = re.findall(
        r"(?:rhoai:==|trainjob --version |trainer:|/v|trainlab-|rhoai\n +version: )(\d+\.\d+\.\d+)", PAGE
    )
    assert len(install) >= 7 and set(install) == {version}


def slug(heading: str) -> str:
    """Return the anchor that GitHub and the site give a heading."""
    return re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()).strip().replace(" ", "-")


def prose(markdown: str) -> str:
    """Return a page without its blocks of code."""
    return re.sub(r"^ *```.*?^ *```", "", markdown, flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    return {
        slug(heading) for heading in re.findall(r"^#+ (.+)$", prose(page.read_text(encoding="utf-8")), re.MULTILINE)
    }


def test_links_lead_somewhere() -> None:
    """Every relative link, anchor and picture of the documentation; each page of docs/ is in its index and in the site."""
    index, site = (DOCS / "index.md").read_text(encoding="utf-8"), (DOCS / "zensical.toml").read_text(encoding="utf-8")
    for page in PAGES:
        links = re.findall(r"\]\(([^)\s]+)|(?:src|srcset)=\"([^\"]+)", prose(page.read_text(encoding="utf-8")))
        for link in filter(None, sum(links, ())):
            if "://" in link:
                continue
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            assert target.exists(), f"{page.relative_to(ROOT)}: {link}"
            assert not anchor or anchor in anchors(target), f"{page.relative_to(ROOT)}: {link}"
        if page.is_relative_to(DOCS) and page.name != "index.md":
            name = str(page.relative_to(DOCS))
            assert f"]({name})" in index and f'"docs/{name}"' in site, name


def test_pages_are_short() -> None:
    """Except for references, which are searched and not read."""
    lengths = {page.relative_to(ROOT): len(words(page.read_text(encoding="utf-8"))) for page in PAGES[2:]}
    long = {str(page): count for page, count in lengths.items() if count > 1200}
    searched = ("docs/reference/", "docs/evidence/", "docs/learn/seeds.md")
    assert {name for name in long if not name.startswith(searched)} == set()


def shells(page: Path) -> list[str]:
    """Return the blocks of a page that are pasted into a shell."""
    return re.findall(r"^```bash\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_commands_work_where_they_are_pasted() -> None:
    """README, start/ and the lessons, each block in a fresh shell of the checkout: no prompt, and no program of an environment not activated.

    The README's blocks are one path: what one of them activates is there in the next. Other pages say that it has to be activated.
    """
    for page in [
        README,
        *(page for folder in ("start", "learn/lessons") for page in sorted((DOCS / folder).glob("*.md"))),
    ]:
        active = False
        for block in shells(page):
            active = active and page == README
            for line in block.splitlines():
                assert not line.startswith(("$ ", "#")), f"{page.name}: {line}"
                active = active or line == ACTIVATES
                assert active or not TOOLS.match(line), f"{page.name}: {line}"
            assert subprocess.run(["bash", "-n"], input=block, text=True, check=False).returncode == 0, block
        prompted = re.findall(r"^\$ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert not [line for line in prompted if TOOLS.match(line)], page.name
    for folder in ("operate", "present"):
        for page in sorted((DOCS / folder).glob("*.md")):
            text = page.read_text(encoding="utf-8")
            assert f"`{ACTIVATES}`" in text or not TOOLS.search("".join(shells(page))), page.name


def words(markdown: str) -> list[str]:
    """Return the words that are read: no blocks of code, pictures or targets of links."""
    text = re.sub(r"<[^>]+>", "", prose(markdown))
    return re.findall(r"\w[^\s|]*", re.sub(r"\]\([^)]*\)", "]", text))


def test_readme_is_short_and_begins_with_what_to_run() -> None:
    """Read in two minutes; cloned and started by line 10 from where galaxy.yml says that the project is."""
    text = README.read_text(encoding="utf-8")
    assert len(words(text)) <= 500
    first = text.splitlines()[:10]
    assert f"git clone {load(ROOT / 'galaxy.yml')['repository']} trainlab" in first and "make demo" in first


def test_readme_names_the_page_and_what_stays_on_a_cluster() -> None:
    """Where both models answer, on which devices; the first line on OpenShift only reads; what is cluster-wide is in bold."""
    text = README.read_text(encoding="utf-8")
    assert re.search(r"^## .*phone.*laptop", text, re.MULTILINE) and "side by side" in text
    lines = [line for line in text.splitlines() if line.startswith("ansible-playbook")]
    assert [re.sub(r"ansible-playbook -i inventory/openshift playbooks/", "", line) for line in lines] == [
        "verify.yml -e phase=quick -e stage=before",
        "site.yml -e phase=quick",
    ]
    assert re.search(r"\*\*Cluster-wide, [^*]*inventory/openshift/platform\.yml[^*]*\*\*", text)


def test_limits_are_the_defaults() -> None:
    """`variable`, N s: the value in seconds of the role, or of the OpenShift inventory."""
    known = described() | {key: value for key, value in load(OPENSHIFT).items() if isinstance(value, int)}
    told = re.findall(r"`(\w+?)(?:\.(\w+))?`, (\d+) s\b", PAGE)
    assert len(told) >= 8
    for name, key, seconds in told:
        value = known[name][key] if key else known[name]
        assert value == int(seconds), f"{name} {key}: {value}"


def test_the_engineers_page_is_what_the_roles_do() -> None:
    """Ports of the NetworkPolicies, and the defaults of quotas."""
    page = (DOCS / "operate" / "overview.md").read_text(encoding="utf-8")
    ports, quotas = (
        page.split(f"## {title}", 1)[1].split("\n## ", 1)[0] for title in ("Ports and egress", "Quotas and limits")
    )
    network = (ROOT / "roles" / "workspace" / "templates" / "network.yaml.j2").read_text(encoding="utf-8")
    network = re.sub(r"^#.*$", "", network, flags=re.MULTILINE)
    listed = {int(port) for cell in re.findall(r"\| ([\d, ]+) \|$", ports, re.MULTILINE) for port in cell.split(", ")}
    named = re.findall(r"port: (\d+)", network) + re.findall(
        r"\d+", "".join(re.findall(r"in \(\[([\d, ]+)\]", network))
    )
    known = described()
    assert listed == {int(port) for port in named} | {
        *known["workspace_egress_ports"],
        *known["attendees_egress_ports"],
    }
    attendees = load(ROOT / "roles" / "attendees" / "vars" / "main.yml")
    pods = re.findall(r"'pods': '(\d+)'", attendees["__attendees_quota"])
    assert f"| an attendee: GPUs, pods | {known['attendees_gpus']}, {pods[0]} |" in quotas
    requests = known["workspace_limits"]["defaultRequest"]
    assert f"| containers without requests | {requests['cpu']} cores, {requests['memory']} |" in quotas
    assert set(known["workspace_quota"].values()) == {"0"} and known["workspace_gpus"] == 0


def test_each_release_has_a_scenario() -> None:
    """A scenario for each release but the prepared ones; all use the one file molecule/default/molecule.yml."""
    found = {path.parent.name.removeprefix("rhoai-"): path for path in ROOT.glob("molecule/rhoai-*/molecule.yml")}
    assert set(found) == set(TESTED)
    for path in found.values():
        assert path.is_symlink() and path.resolve() == ROOT / "molecule" / "default" / "molecule.yml", path
        assert [each.name for each in path.parent.iterdir()] == ["molecule.yml"]


def test_a_release_that_is_named_is_in_the_table() -> None:
    """What an inventory or the workload of AgnosticD starts with."""
    chosen = load(ROOT / "inventory" / "openshift" / "platform.yml")["all"]["vars"]["trainlab_platform_release"]
    assert {chosen, described()["ocp4_workload_trainlab_rhoai_release"]} <= set(TESTED)


def test_releases_are_written_down_once() -> None:
    """No other file of these folders has an entry for a release."""
    entry = re.compile(rf"^\s*\"({'|'.join(map(re.escape, RELEASES))})\":", re.MULTILINE)
    folders = ("plugins", "roles", "docs", "inventory", "tests/api_server")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".yml")]
    assert [path for path in files if entry.search(path.read_text(encoding="utf-8"))] == []
    assert entry.search((ROOT / "meta" / "releases.yml").read_text(encoding="utf-8"))


def test_every_wait_of_the_platform_is_in_the_table_with_its_limit() -> None:
    """The titles are those of the role's tables, which the waits print; limits are the defaults."""
    tables = load(ROOT / "roles" / "platform" / "vars" / "main.yml")
    limits: dict[str, Any] = load(ROOT / "roles" / "platform" / "defaults" / "main.yml")["platform_timeouts"]
    waits = {table["title"]: "operators" for table in tables["__platform_crds"]}
    waits |= {table["title"]: "resources" for table in tables["__platform_queued"]}
    for name in ("resources", "brings"):
        waits |= {table["title"]: "resources" for table in tables[f"__platform_{name}"].values()}
    waits[tables["__platform_resources"]["rhoai"]["title"]] = "rhoai"
    waits[tables["__platform_initialization"]["title"].partition(",")[0]] = "rhoai"
    waits["operators"] = "operators"
    rows = dict(re.findall(r"^\| ([^|]+) \| [^|]+ \| `platform_timeouts\.(\w+)`, \d+ s \|", PAGE, re.MULTILINE))
    assert rows == waits
    said = set(re.findall(r"`platform_timeouts\.(\w+)`, (\d+) s", PAGE))
    assert said == {(name, str(seconds)) for name, seconds in limits.items()}
    sources = {"platform_wait.py": "BRIEF_SECONDS", "openshift_build.py": "REGISTRY_SECONDS"}
    for file, constant in sources.items():
        text = (ROOT / "plugins" / "action" / file).read_text(encoding="utf-8")
        (seconds,) = re.findall(rf"^{constant} = (\d+)\.0$", text, re.MULTILINE)
        assert f"{seconds} s (`{constant}`)" in PAGE
