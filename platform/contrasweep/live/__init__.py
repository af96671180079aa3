"""How a running study is shown: on a terminal, in a notebook, as lines of text, and from its storage."""
