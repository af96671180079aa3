"""Names and texts in Markdown as what they are: no markup, no link, no picture that is fetched from somewhere."""

import re

_ESCAPED = re.compile(
    r"\\(?=[!-/:-@\[-`{-~])|<(?=[A-Za-z/!?])|\[(?=\^)|(?<=\])[(\[:]|\|"
    r"|`|[*~](?=\S)|(?<=\S)[*~]|(?<![^\W_])_|_(?![^\W_])"
)
"""What would begin an escape, a tag, a footnote, the target of a link, a cell, or emphasis."""


def markdown_text(text: str) -> str:
    """Return `text` escaped for Markdown, so that a line or a cell of a table shows it unchanged."""
    return _ESCAPED.sub(lambda match: f"\\{match[0]}", " ".join(text.split()))


def fenced(text: str) -> str:
    """Return `text` as a block of code, with a fence that is longer than any in it."""
    longest = max((len(ticks) for ticks in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"
