"""The ledger of what papers claim, and the page that sets it beside what studies decided.

contrasweep claims                                  # this ledger
contrasweep claims --of mypackage.claims:CLAIMS     # a list of `Claim` of your own
"""

from typing import TYPE_CHECKING

from contrasweep.lazy import importer
from contrasweep.search_spaces.claims.ledger import CLAIMS, Claim

if TYPE_CHECKING:
    from contrasweep.search_spaces.claims.page import write_page

__all__ = ["CLAIMS", "Claim", "write_page"]

__getattr__ = importer(__name__, {"write_page": "page"})  # a list of claims needs no results
