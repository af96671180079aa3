"""What the documentation site needs beyond the pages: the files of the repository that pages link to."""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

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
