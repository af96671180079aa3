"""What the documentation site has beyond the pages: files of the repository that pages link to, the types of the fields
of `@checked` classes, texts for programs, and a report, a board and a judged table to look at."""

import importlib
import inspect
import posixpath
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import griffe
import pandas as pd
from mkdocs.structure.files import File, Files

import contrasweep as cs
from contrasweep.judging.judged import rank
from contrasweep.reporting import report_data
from contrasweep.reporting.page import html_report
from contrasweep.schema import ReadableSignature

ROOT = Path(__file__).resolve().parents[1]
SKILL = "SKILL.md"
LOOK = ROOT / "docs" / "first-look.tar.xz"
"""The records of the demo, which `make pictures` renews, and the scores of MTEB(eng, v2) (CC0)."""
MODELS = [f"Qwen__Qwen3-Embedding-{size}" for size in ("8B", "4B", "0.6B")]
MODELS += ["google__gemini-embedding-001", "google__embeddinggemma-300m"]
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add every file of the repository that a page links to, in its own place, and what shows the tool at work."""
    wanted = {
        target
        for page in files.documentation_pages()
        for link, _ in LINK.findall(page.content_string)
        if (target := _outside(page.src_uri, link))
    }
    for target in sorted(wanted):
        files.append(
            File.generated(config, f"repository/{target}", content=(ROOT / target).read_text())
        )
    for name, content in first_look().items():
        files.append(File.generated(config, f"first-look/{name}.html", content=content))
    return files


def first_look() -> dict[str, str]:
    """Name -> page: the demo's report, a board of 103 models, five of them judged."""
    with tempfile.TemporaryDirectory() as folder, tarfile.open(LOOK) as archive:
        archive.extractall(folder, filter="data")
        demo = cs.load("demo", storage=folder)
        scores = pd.read_csv(Path(folder, "mteb.csv"))
        ended = datetime.fromtimestamp(
            max(record.ended for record in demo.trial_records.values()), UTC
        )
        report = replace(report_data(demo, demo.table()), storage="")
        parts = {
            "board": rank(scores).to_html(),
            "judged": cs.judge(scores[scores.model.isin(MODELS)]).to_html(),
        }
        head = "<!doctype html><meta charset=utf-8><title>contrasweep</title>"
        return {"demo": html_report(report, written=ended)} | {
            name: head + part for name, part in parts.items()
        }


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links that leave docs/ at the copies of what they name."""

    def moved(match: re.Match[str]) -> str:
        target = _outside(page.file.src_uri, match[1])
        place = posixpath.relpath(
            f"repository/{target}", posixpath.dirname(page.file.src_uri) or "."
        )
        return f"]({place}{match[2] or ''})" if target else match[0]

    return LINK.sub(moved, markdown)


def on_nav(nav: Any, config: Any, files: Files) -> Any:
    """Add llms.txt (llmstxt.org): the skill for coding agents, and the Markdown of each page by section of the site."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    lines += [
        "## Agents",
        "",
        f"- [{SKILL}]({SKILL}): From a script to a decision, for coding agents",
    ]
    for section in nav.items:
        pages = [page for page in nav.pages if section in (page, *page.ancestors)]
        lines += ["", f"## {section.title}", "", *(_entry(page) for page in pages)]
    files.append(File.generated(config, "llms.txt", content="\n".join([*lines, ""])))
    return nav


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Put the Markdown of a page beside it; its links lead to the Markdown of others."""
    place = Path(config.site_dir, page.file.src_uri)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(page.markdown)
    return output


def on_post_build(config: Any) -> None:
    """Put the skill for coding agents where llms.txt says it is."""
    shutil.copy(ROOT / SKILL, config.site_dir)


def _entry(page: Any) -> str:
    """A page's line in llms.txt: its title, and the first sentence of its first paragraph if it begins with one."""
    blocks = [
        block for block in page.file.content_string.split("\n\n") if not block.startswith("#")
    ]
    text = " ".join(re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", blocks[0]).split())
    sentence = re.split(r"(?<=[.!?]) (?=[A-Z])", text)[0].rstrip(".:")
    note = "" if text.startswith(("|", "`" * 3)) else f": {sentence}"
    return f"- [{page.title}]({page.file.src_uri}){note}"


def _outside(page: str, link: str) -> str:
    """The file of the repository, outside of docs/, that a link of a page names; empty for one of docs/ or a folder."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))
    return path if not path.startswith("docs/") and (ROOT / path).is_file() else ""


class Checked(griffe.Extension):
    """`@checked` classes have the parameters and the text that `help()` shows of them."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Add what the decorator makes when the class is imported, which Griffe does not do."""
        if not any(
            str(decorator.value).partition("(")[0] == "checked" for decorator in cls.decorators
        ):
            return
        made = getattr(importlib.import_module(cls.module.path), cls.name)
        parameters = griffe.Parameters(griffe.Parameter("self"), *map(_parameter, _signature(made)))
        cls.set_member("__init__", griffe.Function("__init__", parameters=parameters, parent=cls))
        cls.docstring = griffe.Docstring(inspect.getdoc(made) or "", parent=cls, parser="google")


def _signature(made: type) -> Iterable[inspect.Parameter]:
    return inspect.signature(made).parameters.values()


def _parameter(given: inspect.Parameter) -> griffe.Parameter:
    name, _, after = str(ReadableSignature([given]))[1:-1].lstrip("*, ").partition(": ")
    annotation, _, default = (
        after.rpartition(" = ") if given.default is not given.empty else (after, "", None)
    )
    return griffe.Parameter(
        name,
        annotation=annotation,
        default=default,
        kind=griffe.ParameterKind[given.kind.name.lower()],
    )
