"""How large the product and its tests are, in Python tokens, which no formatter changes.

`python tests/support/size.py` prints it.
Comments, docstrings, line ends and indentation are no tokens.
"""

import ast
import io
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORE = ("platform", "cluster")
PRODUCT = (*CORE, "trainables", "search_spaces")
SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}


def tokens(text):
    """The tokens of a module."""
    documented = sum(
        isinstance(part, ast.Expr)
        and isinstance(part.value, ast.Constant)
        and isinstance(part.value.value, str)
        for part in ast.walk(ast.parse(text))
    )
    return (
        sum(t.type not in SILENT for t in tokenize.generate_tokens(io.StringIO(text).readline))
        - documented
    )


def sizes():
    """Tokens of the core, the product and the tests. The links in `platform` are followed nowhere."""
    folders = {
        name: sum(
            tokens(path.read_text())
            for path in (ROOT / name).rglob("*.py")
            if path.resolve().is_relative_to(ROOT / name)
        )
        for name in (*PRODUCT, "tests")
    }
    return {
        "core": sum(folders[name] for name in CORE),
        "product": sum(folders[name] for name in PRODUCT),
        "tests": folders["tests"],
    }


if __name__ == "__main__":
    print(sizes())
