"""Addresses that are told of a run's events, and the delivery of one event to one address.

`python -m contrasweep.delivery ADDRESS` delivers one: a process of its own, so that an address that hangs, answers for
ever or ends its process harms nothing else.
"""

import ipaddress
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from contrasweep.errors import SpecError
from contrasweep.imports import import_from_here, import_path, in_one_line
from contrasweep.secrets import redacted, remember, secrets_in

KINDS = ("slack", "discord", "ntfy", "command", "env", "http", "https")
"""Words before the first colon of an address; any other is a module."""
DELIVER_S = 30.0
"""After so long a delivery is ended, with all its tries."""
ANSWER_S = 10.0
PAUSES_S = (1.0, 4.0, 0.0)
"""Pauses after the tries of a POST."""
MAX_ANSWER = 4096
Message = dict[str, Any]
"""An event, or what a service takes of it, as JSON."""
_VARIABLE = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")
_METADATA = {"100.100.100.200", "fd00:ec2::254"}
"""Addresses beside the link-local ones at which clouds give a machine its credentials."""


@dataclass(frozen=True)
class Address:
    """An address as it is declared, and where it leads: its kind, and a URL, the words of a command or a function."""

    declared: str
    kind: str
    target: str

    @classmethod
    def of(cls, declared: str) -> "Address":
        """Read an address, with the variable that it names. `SpecError` for one that cannot work."""
        kind, _, target = declared.partition(":")
        if kind not in KINDS:
            return cls(declared, "function", declared)
        if kind == "command":
            return cls(declared, kind, target.strip())
        if kind in ("http", "https", "env"):
            kind, target = "json", declared
        if target.startswith("env:"):
            target = _of_variable(target, declared)
        _check_url(target, declared)
        if kind == "ntfy" and not urlsplit(target).path.strip("/"):
            raise SpecError("ntfy's address ends with a topic", place="notify", hint="ntfy:https://ntfy.sh/TOPIC")
        return cls(declared, kind, target)


def check_declared(addresses: str | list[str] | None) -> str | list[str] | None:
    """Refuse addresses that are secrets themselves, or nothing that can be told: a study's file is kept and shown."""
    for address in [addresses] if isinstance(addresses, str) else addresses or []:
        kind, _, target = address.partition("//")
        is_url = bool(target) and not kind.startswith("command:")
        if redacted(address) != address or (is_url and set("?#") & set(target)):
            raise SpecError(
                "a study holds no secret, and who knows this address can post there",
                value=f"{kind}//...",
                hint="set an environment variable to it and name that, for example slack:env:SLACK_HOOK",
            )
        if is_url:
            _check_host(f"//{target}", address)
        if not address.isprintable() or ":" not in address:
            raise SpecError(
                "who is told is https://..., package.module:function, command: WORDS, or env:NAME after slack:, "
                "discord:, ntfy: or nothing",
                value=address,
            )
    return addresses


def checked_addresses(declared: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the addresses of a study; `SpecError` for one that cannot work here."""
    addresses = dict.fromkeys([declared] if isinstance(declared, str) else declared or ())
    for declared in addresses:
        address = Address.of(declared)
        if address.kind == "command":
            _words(address)
        elif address.kind == "function":
            import_from_here()
            import_path(declared, "notify", "function")
    return tuple(addresses)


def deliver(declared: str, message: Mapping[str, object]) -> str:
    """Deliver a message to an address, within half a minute; return why it was not, or ""."""
    try:
        address = Address.of(declared)
        words = _words(address) if address.kind == "command" else [sys.executable, "-P", "-m", __name__, declared]
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE if address.kind != "command" else subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
    except (SpecError, OSError) as error:
        return str(error)
    try:
        _, errors = process.communicate(json.dumps(message), DELIVER_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # with what it has started
        process.wait()
        return f"it took over {DELIVER_S:g} s"
    return "" if process.returncode == 0 else (errors or "").strip()[-300:] or f"exit status {process.returncode}"


def body_of(address: Address, message: Mapping[str, object]) -> tuple[str, Message]:
    """Return the URL and the JSON of a message, as the service of the address takes it."""
    text = str(message["text"])
    if address.kind == "slack":
        return address.target, {"text": text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")}
    if address.kind == "discord":
        return address.target, {"content": text, "allowed_mentions": {"parse": []}}
    if address.kind == "ntfy":
        parts = urlsplit(address.target)
        folder, _, topic = parts.path.rpartition("/")
        failed = message["event"] in ("failure", "silent")
        tags = ["warning" if failed else "white_check_mark"]
        url = parts._replace(path=f"{folder}/").geturl()
        return url, {"topic": topic, "title": f"contrasweep: {message['event']}", "message": text, "tags": tags}
    return address.target, dict(message)


def post(url: str, body: Mapping[str, object]) -> str:
    """Send one JSON POST, with two more tries where nobody received it; return why it failed, or ""."""
    from urllib.error import HTTPError  # which every command would import else
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class Direct(HTTPRedirectHandler):
        """Follows no redirect: a POST is not repeated elsewhere, and no answer names a file of this machine."""

        def redirect_request(self, *_: Any) -> None:
            """Return None: the redirect is an error."""

    headers = {"Content-Type": "application/json", "User-Agent": "contrasweep"}
    opener = build_opener(Direct)
    problem = ""
    for pause in PAUSES_S:
        request = Request(url, json.dumps(body).encode(), headers, method="POST")
        try:
            with opener.open(request, timeout=ANSWER_S) as answer:
                answer.read(MAX_ANSWER)
            return ""
        except HTTPError as error:
            problem = f"HTTP status {error.code}{', and redirects are not followed' * (error.code < 400)}"
            error.close()
            if error.code != 429 and error.code < 500:
                return problem
        except TimeoutError:  # it may have it: a second try could be a second message
            return f"no answer in {ANSWER_S:g} s"
        except (OSError, ValueError) as error:
            problem = str(getattr(error, "reason", error) or type(error).__name__)
        except Exception as error:  # http.client's own, for an answer that is no HTTP
            return f"{type(error).__name__}: it does not speak HTTP"
        time.sleep(pause)
    return problem


def main() -> None:
    """Deliver the message on standard input to the address in the argument."""
    address, message = Address.of(sys.argv[1]), json.load(sys.stdin)
    if address.kind == "function":
        try:
            import_path(address.target, "notify", "function")(message)
        except (Exception, SystemExit) as error:
            sys.exit(in_one_line(error))
        return
    sys.addaudithook(_connects)  # sees what a name resolves to as it is used, whoever asked for it
    if problem := post(*body_of(address, message)):
        sys.exit(redacted(problem))


def _of_variable(target: str, declared: str) -> str:
    match = _VARIABLE.fullmatch(target)
    value = os.environ.get(match[1], "").strip() if match else ""
    if not value:
        raise SpecError(
            "the environment variable of an address is not set" if match else "env: names an environment variable",
            place="notify",
            value=declared,
        )
    remember(value, *secrets_in(value))
    return value


def _check_url(url: str, declared: str) -> None:
    """Raise `SpecError` without the URL itself, which may be a secret."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and "@" not in parts.netloc
    except ValueError:
        sound = False
    if not sound or not url.isascii() or not url.isprintable() or " " in url:
        raise SpecError(
            "a notification goes to http://HOST/... or https://HOST/..., without user, spaces and control characters",
            place="notify",
            value=redacted(declared),
        )
    _check_host(url, declared)


def _check_host(url: str, declared: str) -> None:
    """Raise `SpecError` for a host that is the number of a link-local address, however it is written."""
    try:
        host = (urlsplit(url).hostname or "").partition("%")[0]  # without the zone
        found = socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
    except (OSError, ValueError):  # a name; no URL, which is refused elsewhere
        return
    if any(is_link_local(str(address[0])) for *_, address in found):
        raise SpecError("a notification goes to no link-local address", place="notify", value=redacted(declared))


def is_link_local(number: str) -> bool:
    """Return whether an IP address is link-local, where clouds give a machine its credentials, or embeds such a one."""
    try:
        address = ipaddress.ip_address(number)
    except ValueError:
        return False
    embedded: list[ipaddress.IPv4Address | None] = []
    if isinstance(address, ipaddress.IPv6Address):
        embedded = [address.ipv4_mapped, address.sixtofour, (address.teredo or (None, None))[1]]
        if int(address) >> 32 in (0, 0x64FF9B << 64):  # as ::1.2.3.4, and behind NAT64
            embedded.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return any(one is not None and (one.is_link_local or str(one) in _METADATA) for one in (address, *embedded))


def _connects(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect" and isinstance(arguments[1], tuple) and is_link_local(str(arguments[1][0])):
        raise OSError("the name is one of a link-local address")


def _words(address: Address) -> list[str]:
    try:
        words = shlex.split(address.target)
    except ValueError as error:
        raise SpecError("the words of a command", place="notify", value=address.declared, hint=str(error)) from None
    if not words:
        raise SpecError("a command has words", place="notify", value=address.declared, hint='"command: notify-send"')
    return words


if __name__ == "__main__":
    main()
