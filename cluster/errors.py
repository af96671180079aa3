"""Errors of hosts and clusters that are the user's to mend; each is one line."""


class ClusterError(Exception):
    """Base of this package's errors. The command line prints the message and exits with 2."""


class FootprintError(ClusterError, ValueError):
    """A footprint that no host could have: a negative memory, a share of nothing."""


class InventoryError(ClusterError):
    """An inventory file that cannot be read, or that describes no host."""


class SubmissionError(ClusterError):
    """A job that was refused before anything was queued: address, token, version or address of storage."""


class JobNotFoundError(SubmissionError):
    """There is no job of that name on the cluster."""
