"""Why a network, a loss or an optimizer cannot be trained with others as one."""


class Unfoldable(Exception):
    """It runs alone; `reason` is a sentence that names what has no rule."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
