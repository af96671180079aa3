"""What the documentation site needs beyond the pages: the files of the repository that pages link to, and the types of
the fields of `@checked` classes."""

import importlib
import inspect
import posixpath
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File, Files

from contrasweep.schema import ReadableSignature

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add every file of the repository that a page links to, in its own place."""
    wanted = {
        target
        for page in files.documentation_pages()
        for link, _ in LINK.findall(page.content_string)
        if (target := _outside(page.src_uri, link))
    }
    for target in sorted(wanted):
        files.append(File.generated(config, f"repository/{target}", content=(ROOT / target).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links that leave docs/ at the copies of what they name."""

    def moved(match: re.Match[str]) -> str:
        target = _outside(page.file.src_uri, match[1])
        place = posixpath.relpath(f"repository/{target}", posixpath.dirname(page.file.src_uri) or ".")
        return f"]({place}{match[2] or ''})" if target else match[0]

    return LINK.sub(moved, markdown)


def _outside(page: str, link: str) -> str:
    """The file of the repository, outside of docs/, that a link of a page names; empty for one of docs/ or a folder."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))
    return path if not path.startswith("docs/") and (ROOT / path).is_file() else ""


class Checked(griffe.Extension):
    """`@checked` classes have the parameters and the text that `help()` shows of them."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Add what the decorator makes when the class is imported, which Griffe does not do."""
        if not any(str(decorator.value).partition("(")[0] == "checked" for decorator in cls.decorators):
            return
        made = getattr(importlib.import_module(cls.module.path), cls.name)
        parameters = griffe.Parameters(griffe.Parameter("self"), *map(_parameter, _signature(made)))
        cls.set_member("__init__", griffe.Function("__init__", parameters=parameters, parent=cls))
        cls.docstring = griffe.Docstring(inspect.getdoc(made) or "", parent=cls, parser="google")


def _signature(made: type) -> Iterable[inspect.Parameter]:
    return inspect.signature(made).parameters.values()


def _parameter(given: inspect.Parameter) -> griffe.Parameter:
    name, _, after = str(ReadableSignature([given]))[1:-1].lstrip("*, ").partition(": ")
    annotation, _, default = after.rpartition(" = ") if given.default is not given.empty else (after, "", None)
    return griffe.Parameter(
        name, annotation=annotation, default=default, kind=griffe.ParameterKind[given.kind.name.lower()]
    )
