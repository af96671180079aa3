"""Names and marks by which results are shown to people, and the parts of texts, Markdown, LaTeX and HTML."""

import functools
import re
import textwrap
import unicodedata
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

    def __call__(self, word: str) -> str:
        """Return the display name of a declared name."""
        return self.names.get(word, word)


NONE = DisplayNames()


def display_names(labels: Mapping[str, str], words: Iterable[str]) -> DisplayNames:
    """Return the display names of a study from its `labels` (declared name -> display name).

    `words` are all arms, axes and metrics of the study. Where several names would be shown alike, the declared name
    stands behind the display name, so that two arms never look like one.
    """
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
"""The same in LaTeX."""
NOT_WORSE = "* not shown to be worse than the best"
"""The line of a legend on the mark of the best cells; every format has its own mark in place of the asterisk."""


def marked_as(line: str, mark: str) -> str:
    """Return a line of a table's legend with `mark`, such as `★`, in place of the asterisk that marks the best."""
    return line.replace(NOT_WORSE, NOT_WORSE.replace("*", mark))


def wrapped(line: str, width: int) -> str:
    """Return `line` broken into lines of at most `width` columns, where further lines are indented by two spaces.

    A line never begins with an interval or within `p = 0.031`.
    """
    # The spaces before them become no-break spaces until the lines are filled.
    unbreakable = line.replace(" = ", "\u00a0=\u00a0").replace(" [", "\u00a0[")
    filled = textwrap.fill(
        unbreakable, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return filled.replace("\u00a0", " ")


def markdown_item(text: str) -> str:
    """Return `text` as an item of a Markdown list, with its bullet; Markdown in `text` is escaped."""
    return f"- {markdown_text(text)}"


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table whose first row is the head; Markdown in entries is escaped."""
    head, *body = [[markdown_text(entry) for entry in row] for row in rows]
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *body)]


_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi "
    "omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
)
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
    "|": r"$|$",
    **{c: f"\\{c}" for c in "&%$#_{}"},
    **{
        letter: rf"$\{name}$"
        for letter, name in zip("αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ", _GREEK.split(), strict=True)
    },
}
"""Characters that LaTeX would obey or its fonts lack, and what prints them."""
FONTLESS = "ÐÞðþĄąĐđĘęĦħĮįĸĿŀŉŊŋŦŧŲųſ"
"""Letters of Latin Extended-A that the fonts of plain LaTeX lack."""


def latex_text(value: str) -> str:
    """Return a text escaped for LaTeX. A character that pdflatex lacks is written by its code point: `[U+4E2D]`."""
    # On one line, as an empty line would end an argument.
    line = unicodedata.normalize("NFC", " ".join(value.split()))
    text = "".join(map(_latex_character, line))
    return re.sub(r" x (?=\d)", r" $\\times$ ", text)  # 5 folds x 2 seeds


def _latex_character(character: str) -> str:
    """Return the LaTeX for one character: itself, a command, or `[U+4E2D]` for one that pdflatex lacks."""
    if character.isascii() or character in SPECIAL:
        return SPECIAL.get(character, character)
    printed = "À" <= character <= "ž" and character not in FONTLESS
    return character if printed else f"[U+{ord(character):04X}]"


def latex_row(entries: Iterable[str]) -> str:
    """Return a line of a tabular; the entries are LaTeX already."""
    row = " & ".join(entries) + r" \\"
    # A bracket would be an argument of the line break or the rule before it.
    return "{}" + row if row.startswith("[") else row


def latex_table(
    caption: str,
    layout: str,
    head: Sequence[str],
    body: Sequence[str],
    *,
    label: str = "",
    wide: bool = False,
    below: Sequence[str],
) -> str:
    """Return a table of the lines `head` and `body`, which are LaTeX already (`latex_row`).

    `caption` and the lines `below` the table are plain text. `layout` is the argument of tabular (`lrr`), `label` the
    name of the table in references. A `wide` table is over both columns of a page.
    """
    environment = "table*" if wide else "table"
    labelled = [rf"\label{{{label}}}"] if label else []
    notes = [latex_text(line) + r"\par" for line in below]
    if notes:
        start = r"\par\smallskip\begin{minipage}{\linewidth}\footnotesize"
        notes = [start, *notes, r"\end{minipage}"]
    lines = [
        r"% needs \usepackage{booktabs}",
        rf"\begin{{{environment}}}",
        r"\centering",
        rf"\caption{{{latex_text(caption)}}}",
        *labelled,
        rf"\begin{{tabular}}{{{layout}}}",
        r"\toprule",
        *head,
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        *notes,
        rf"\end{{{environment}}}",
    ]
    return "\n".join(lines) + "\n"


@functools.cache
def templates(*packages: str) -> "Environment":
    """Return the Jinja environment with the HTML templates of these packages.

    Where several packages have a template of one name, that of the package named first is used.
    """
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
    # Styles and scripts are included without rendering: Jinja2 would take some of their braces for its own.
    environment.globals["asset"] = lambda name: Markup(loader.get_source(environment, name)[0])
    environment.filters["starred"] = lambda line: marked_as(line, "★")
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    return environment


def render_fragment(name: str, **context: Any) -> str:
    """Return HTML: the template `name` of the package `contrasweep.results`, filled with the values `context`."""
    return templates("contrasweep.results").get_template(name).render(context)
