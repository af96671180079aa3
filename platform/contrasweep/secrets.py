"""Passwords: where they come from (the environment, a file), and how no text that we print or store has one.

In an address a secret stands before the host, in the query, behind the #, or in the path where a service puts it there.
"""

import re

from contrasweep.errors import SpecError

HIDDEN = "***"
_SCHEME = r"[a-z][a-z0-9+.-]*+:\\?/\\?/"  # in JSON of some programs slashes are escaped
_ADDRESS = re.compile(
    # Tried at the first sign of a word alone, so that a long word takes no longer than short ones.
    r"((?<![a-z0-9+.-])[0-9+.-]*+"
    rf"""{_SCHEME})((?:(?![,;'"(\[|=]{_SCHEME})[^\s?#])+(?:[?#](?:(?!['"(\[|]{_SCHEME})\S)*)?|[?#]\S*)""",
    re.ASCII | re.IGNORECASE,
)
"""A scheme and what follows it, up to white space or to another address behind a separator.

In a query or a fragment a comma, a semicolon or an equals sign separates no addresses: a secret may look like one.
"""
_END = re.compile(r"[\"'`)\]}>,.:;!?]*$")
"""Signs of the text around an address."""
_HOST = re.compile(r"(\[[^\]]*\]|[^:@]*)(:([0-9]{0,5}|[A-Z]+))?")
"""A host, in brackets where it is a number of IPv6, with a port or the word that stands for one."""
_USER_IS_SHOWN = re.compile(
    r"[0-9+.-]*(postgres|mysql|mariadb|mssql|oracle|mongodb|abfs|wasb|az|hdfs|sftp|ssh|smb)",
    re.IGNORECASE,
)
"""Beginnings of schemes whose part before the host is a user or a container; of other schemes it may be a token."""
_SERVICES = re.compile(
    r"^(hooks\.slack(?:-gov)?\.com/|hc-ping\.com/|[^/]*/(?:.*/)?(?:bot(?=\d+:)|(?:(?:web)?hooks?(?:b2)?|with/key)/)).+",
    re.IGNORECASE,
)
"""Hosts and folders of a path behind which a service has a secret: Slack, Telegram, Discord, Outlook and others."""
HARMLESS = {
    "sslmode",
    "sslrootcert",
    "sslcert",
    "connect_timeout",
    "timeout",
    "application_name",
    "target_session_attrs",
    "channel_binding",
    "charset",
    "ssl",
    "mode",
    "cache",
    "user",
    "host",
    "port",
    "driver",
    "dbname",
    "database",
    "q",
    "page",
    "tab",
    "format",
    "lang",
    "version",
    "region",
}
"""Names in a query whose values are shown; any other may be a secret."""


def redacted(text: str) -> str:
    """Return `text` without the secrets of the addresses in it.

    It hides three things: what stands before an `@`; the values of a query or a fragment (up to the next `&`) whose
    names are not known to be harmless; and the paths of services that post for everybody who knows them.
    """
    return _ADDRESS.sub(_shown, text)


def _shown(match: re.Match[str]) -> str:
    """Return the address that `match` of `_ADDRESS` has found, with its secrets replaced by `***`."""
    scheme = match[1]
    rest, end = _parted(match[2], _END)  # `end`: punctuation of the text around the address
    shows_user = _USER_IS_SHOWN.match(scheme) is not None
    at = _end_of_user(rest, shows_user)
    if at is None:  # where the user ends is not clear, so all is hidden
        return f"{scheme}{HIDDEN}{end}"
    user_text = "" if at < 0 else _shown_user(rest[:at], shows_user)  # below 0: there is no user
    # Host and path, then the query and the fragment.
    host_and_path, tail = _parted(rest[at + 1 :], re.compile("([?#;].*)?$", re.DOTALL))
    # Addresses of services that post for everybody who knows them: the path itself is the secret.
    if service := _SERVICES.match(host_and_path):
        host_and_path = f"{service[1]}{HIDDEN}"
    # With an at sign, what looks like a query may be the end of a password.
    if "@" in tail:
        return f"{scheme}{user_text}{host_and_path}{tail[0]}{HIDDEN}{end}"
    return f"{scheme}{user_text}{host_and_path}{_shown_query(tail)}{end}"


def _shown_user(user_and_password: str, shows_user: bool) -> str:
    """Return the part of an address before the host, as it is shown: `ann:***@` for `ann:secret`.

    Without `shows_user` the user may be a token, so the result is `***@`.
    """
    user, colon, _ = user_and_password.partition(":")
    if not shows_user:
        return f"{HIDDEN}@"
    return f"{user}:{HIDDEN}@" if colon else f"{user}@"


def _end_of_user(rest: str, shows_user: bool) -> int | None:
    """Return where the @ behind user and password stands in `rest`, an address without its scheme.

    -1: the address has neither. The length of `rest`: all of it may be a password whose @ was cut off. None: the place
    is not clear, so that all of the address has to be hidden. `shows_user`: see `_USER_IS_SHOWN`.
    """
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    # Where the address begins with a host, at signs in its path and query end no user.
    if _HOST.fullmatch(authority):
        # But in `postgres://me:12/34@host` user and password look like a host, its port and a path. Where the scheme is
        # of that kind (`shows_user`), an at sign in the path does end them.
        path = re.split("[?#]", rest, maxsplit=1)[0]
        return path.rfind("@") if shows_user and authority else -1
    # The last at sign: passwords have slashes and at signs that should have been escaped.
    at = rest.rfind("@")
    if at < 0:
        return len(rest)
    if re.search("@.*[?#]", rest[:at]):  # a password with these signs, or a query with an at sign
        return None
    return at


def _shown_query(tail: str) -> str:
    """Return the query and the fragment of an address as they are shown."""
    # `split` gives "", then by turns a sign and the text behind it, which is mostly a name with its value.
    parts = re.split("([?&;#])", tail)
    after_secret = False
    for number in range(2, len(parts), 2):
        sign = parts[number - 1]
        text = parts[number]
        name, equals, value = text.partition("=")
        # Only an & surely ends a value. Behind another sign the rest of a secret may stand, which has no name.
        goes_on = after_secret and sign != "&"
        if goes_on:
            name, equals, value = "", "", text
        # `#installation` names a place of a page.
        is_anchor = sign == "#" and number == 2 and not equals
        # An address as a value may have a secret of its own, whatever the name says.
        is_harmless = "://" not in text and (
            name.casefold() in HARMLESS or not re.search(r"\w", text)
        )
        after_secret = not is_anchor and not is_harmless
        if not after_secret:
            continue
        # A text in base64 may end with equals signs. Without a name it stands in the name's place, and has no value.
        value = value.strip("=")
        parts[number] = f"{name}={HIDDEN}" if value and not goes_on else HIDDEN
    return "".join(parts)


def _parted(text: str, end: re.Pattern[str]) -> tuple[str, str]:
    """Return `text` in two parts: the second begins with the first match of `end`, and is "" without a match."""
    match = end.search(text)
    at = match.start() if match else len(text)
    return text[:at], text[at:]


def check_arguments(arguments: list[str]) -> None:
    """Raise `SpecError` for a password in a command's arguments: every user of the machine can read those."""
    for argument in arguments:
        if redacted(argument) != argument:
            raise SpecError(
                "a password, or what may be one in an address, can be read by every user of this machine",
                value=redacted(argument),
                hint="leave it out of the address, and set for an MLflow server MLFLOW_TRACKING_USERNAME and "
                "MLFLOW_TRACKING_PASSWORD, for S3 the AWS_ variables",
            )
