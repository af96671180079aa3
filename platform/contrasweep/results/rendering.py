"""Names and marks by which results are shown to people, and the parts of texts, Markdown, LaTeX and HTML."""

import functools
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from contrasweep.markdown_text import markdown_text

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True)
class DisplayNames:
    """Display names by declared name; a word without a display name is shown unchanged."""

    names: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.names)

    def __call__(self, word: str) -> str:
        """Return the display name of a declared name."""
        return self.names.get(word, word)


NONE = DisplayNames()


def display_names(labels: Mapping[str, str], words: Iterable[str]) -> DisplayNames:
    """Return the display names of a study from its `labels` (declared name -> display name).

    `words` are all its arms, axes and metrics. Where several of them would look alike, the declared name stands behind
    the display name: two arms never look like one.
    """
    if not labels:
        return NONE
    by_word = {word: labels.get(word, word) for word in [*labels, *words]}
    counts = Counter(by_word.values())
    return DisplayNames(
        {
            word: by_word[word] if counts[by_word[word]] == 1 else f"{by_word[word]} ({word})"
            for word in labels
        }
    )


ARROWS: Mapping[str, str] = {"": "", "better": " ↑", "worse": " ↓"}
"""How a cell's mark is shown."""
LATEX_ARROWS: Mapping[str, str] = {"": "", "better": r"\,$\uparrow$", "worse": r"\,$\downarrow$"}
NOT_WORSE = "* not shown to be worse than the best"
"""What the mark of a cell says; every format has its own mark for the asterisk."""


def marked_as(line: str, mark: str) -> str:
    """Return a line of a legend with `mark` in place of the star."""
    return line.replace(NOT_WORSE, NOT_WORSE.replace("*", mark))


def wrapped(line: str, width: int) -> str:
    """Return `line` over several lines; a number stays on the line of the word that it belongs to."""
    # A space that may not be broken stands for that before a p-value and before an interval, and is a space again.
    unbreakable = line.replace(" = ", "\u00a0=\u00a0").replace(" [", "\u00a0[")
    filled = textwrap.fill(
        unbreakable, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return filled.replace("\u00a0", " ")


def markdown_item(text: str) -> str:
    """Return `text` as an entry of a list in Markdown, shown as it is."""
    return f"- {markdown_text(text)}"


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table whose first row is the head; entries are shown as they are."""
    head, *body = [[markdown_text(entry) for entry in row] for row in rows]
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *body)]


SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "∞": r"$\infty$",
    "±": r"$\pm$",
    "†": r"$\dagger$",
    "<": r"$<$",
    ">": r"$>$",
    "*": r"$*$",
    **{c: f"\\{c}" for c in "&%$#_{}"},
}
"""Characters that LaTeX would obey or its fonts lack, and what prints them."""


def latex_text(value: str) -> str:
    """Return a text for LaTeX; what pdflatex has no character for is written by its code point: `[U+4E2D]`."""
    text = "".join(SPECIAL.get(c, c if c.isascii() else f"[U+{ord(c):04X}]") for c in value)
    return re.sub(r" x (?=\d)", r" $\\times$ ", text)  # 5 folds x 2 seeds


def latex_row(entries: Iterable[str]) -> str:
    """Return a line of a tabular; the entries are LaTeX already."""
    return " & ".join(entries) + r" \\"


def latex_table(
    caption: str,
    layout: str,
    head: Sequence[str],
    body: Sequence[str],
    *,
    label: str = "",
    wide: bool = False,
    below: Sequence[str] = (),
) -> str:
    """Return a table of the lines `head` and `body`, which are LaTeX already (`latex_row`).

    `caption` and the lines `below` the table are plain text, `layout` is the argument of tabular (`lrr`), `label` the
    name that references have for it. A `wide` table is over both columns of a page.
    """
    environment = "table*" if wide else "table"
    lines = [
        r"% needs \usepackage{booktabs}" + r" and \usepackage{siunitx}" * ("S[" in layout),
        rf"\begin{{{environment}}}",
        r"\centering",
        rf"\caption{{{latex_text(caption)}}}",
        *([rf"\label{{{label}}}"] if label else []),
        rf"\begin{{tabular}}{{{layout}}}",
        r"\toprule",
        *head,
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        *([r"\par\smallskip\begin{minipage}{\linewidth}\footnotesize"] if below else []),
        *(latex_text(line) + r"\par" for line in below),
        *([r"\end{minipage}"] if below else []),
        rf"\end{{{environment}}}",
    ]
    return "\n".join(lines) + "\n"


@functools.cache
def templates(*packages: str) -> "Environment":
    """Return the HTML templates of these packages; a name is that of the first package that has it."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    loader = ChoiceLoader([PackageLoader(package) for package in packages])
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"ARROWS": ARROWS, "zip": zip}
    # styles and scripts are taken as they are: some of their braces would be Jinja2's
    environment.globals["asset"] = lambda name: Markup(loader.get_source(environment, name)[0])
    environment.filters["starred"] = lambda line: marked_as(line, "★")
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    return environment


def render_fragment(name: str, **context: Any) -> str:
    """Return a fragment of HTML: the template `name` of the results with these values."""
    return templates("contrasweep.results").get_template(name).render(context)
