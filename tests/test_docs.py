"""The documentation site: every page is built, and every link on it leads somewhere."""

import dataclasses
import html
import inspect
import re
from urllib.parse import unquote

import pytest
import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config
from places import ROOT

import contrasweep as cs
from contrasweep.study.file import to_plain

pytestmark = pytest.mark.xdist_group("docs")  # the site is built once for all of them


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    build(
        load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder))
    )  # strict: a warning is an error
    return folder


def test_every_page_of_the_docs_is_in_the_site(site):
    pages = {
        path.relative_to(ROOT / "docs").with_suffix(".html")
        for path in (ROOT / "docs").rglob("*.md")
    }
    assert {path for path in pages if not (site / path).is_file()} == set()


def test_no_link_of_the_site_is_dead(site):
    dead = [
        (page.name, link)
        for page in site.rglob("*.html")
        if page.name != "404.html"
        for link in re.findall(r'(?:href|src)="([^"#?:]+)["#?]', page.read_text())
        if not (page.parent / unquote(link)).exists()
    ]
    assert dead == []


def test_no_page_needs_a_network(site):
    outside = {
        address
        for page in site.rglob("*.html")
        for address in re.findall(
            r'<(?:script|img|link)[^>]*(?:src|href)="(https?://[^"]+)"', page.read_text()
        )
    }
    assert outside == set()


def test_llms_txt_names_the_markdown_of_every_page_and_each_of_its_links_leads_somewhere(site):
    listed = set(
        re.findall(r"^- \[[^\]]+\]\(([^)]+)\)", (site / "llms.txt").read_text(), flags=re.MULTILINE)
    )
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert listed == {page for page in pages if not page.startswith("claims/")} | {"SKILL.md"}
    dead = [
        (page, link)
        for page in listed
        for link in re.findall(r"\]\((?!https?:|mailto:)([^)#\s]+)", (site / page).read_text())
        if not (site / page).parent.joinpath(unquote(link)).exists()
    ]
    assert dead == []


def test_a_report_a_board_and_a_judged_table_are_seen_without_an_installation(site):
    said = {
        "demo": "supcon is better than infonce",
        "board": "of 102 adjacent pairs",
        "judged": "Qwen3-Embedding-8B",
    }
    for page, text in said.items():
        assert text in html.unescape((site / f"first-look/{page}.html").read_text()), page


@pytest.mark.parametrize("made", [cs.AblationGrid, cs.Sweep, cs.Arm, cs.Replicates])
def test_the_reference_has_the_type_of_every_field(site, made):
    rows = re.findall(
        r"<tr class=\"doc-section-item\">.*?</tr>", (site / "api.html").read_text(), re.DOTALL
    )
    said = {" ".join(html.unescape(re.sub("<[^>]+>", "", row)).split()) for row in rows}
    for name, parameter in inspect.signature(made).parameters.items():
        shown = str(type(inspect.signature(made))([parameter.replace(default=parameter.empty)]))[
            1:-1
        ].removeprefix("*, ")
        kind = shown.partition(": ")[2]
        assert any(row.startswith(f"{name} {kind} ") for row in said), f"{name}: {kind}"


BASES = (
    "",
    "platform/contrasweep",
    "platform/contrasweep/running",
    "platform/contrasweep/data",
    "trainables",
)
"""Folders below which the pages for developers name files."""


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md", "README.md"])
def test_every_file_that_a_page_for_developers_names_is_there(page):
    text = (ROOT / page).read_text()
    named = set(re.findall(r"`([\w/.]+\.(?:py|md)|\w+/[\w/]+/)`", text))
    assert named  # otherwise the search for them is at fault
    assert {
        name for name in named if not any((ROOT / base / name).exists() for base in BASES)
    } == set()


def test_each_line_of_what_a_hostile_one_can_do_names_tests_that_there_are():
    text = (
        (ROOT / "SECURITY.md")
        .read_text()
        .replace("[any]", "`test_no_command_does_what_any_forged_storage_says`")
    )
    rows = re.findall(r"^\| (?!read|---)[^|]+ \| [^|]+ \| ([^|]+) \|$", text, re.MULTILINE)
    sources = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named = [set(re.findall(r"`(test_\w+)`", row)) for row in rows]
    assert len(rows) > 15 and all(named)
    assert (
        set().union(*named) - set(re.findall(r"^def (test_\w+)\(", sources, re.MULTILINE)) == set()
    )


def test_the_page_of_campaigns_has_every_field_with_its_default():
    page = (ROOT / "docs/keep-or-discard.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| ", page, re.MULTILINE)
    shown = {field: yaml.safe_load(default.strip("`")) for field, default in rows}
    plain = to_plain(cs.Campaign("n", cs.Arm("contrastive"), "d"))
    given = dict.fromkeys(("name", "incumbent", "data"), "required")
    fields = [field.name for field in dataclasses.fields(cs.Campaign)]
    assert shown == dict.fromkeys(fields, "none") | plain | given
