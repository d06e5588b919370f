"""A letter as an e-mail, and the way of one to its server: over TLS from the start, or from STARTTLS on.

What is connected to are addresses that were judged before; the name of the server is for its certificate alone.
"""

import smtplib
import socket
import ssl
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid
from typing import Final

from commonpool.config.structs import Mail
from commonpool.control.alerting.letters import Letter, lines, title
from commonpool.core.model import NS_PER_S

TIMEOUT_S: Final = 20.0
READY: Final = 220


class MailError(Exception):
    """A server did not take an e-mail: why, without a full stop and without what was said to log in."""


def message_of(letter: Letter, mail: Mail, moment: Callable[[int], str]) -> EmailMessage:
    message = EmailMessage()
    message["Subject"] = title(letter)
    message["From"] = mail.sender
    message["To"] = ", ".join(mail.to)
    message["Date"] = format_datetime(datetime.fromtimestamp(letter.sent_ns // NS_PER_S, UTC))
    message["Message-ID"] = make_msgid(domain=mail.sender.rpartition("@")[2])
    message["Auto-Submitted"] = "auto-generated"  # RFC 3834: nobody's holiday notice answers it
    message.set_content("\n\n".join(lines(letter, moment)) + "\n")
    return message


def send(
    message: EmailMessage, mail: Mail, password: str | None, addresses: Sequence[str], trusted: ssl.SSLContext
) -> None:
    """Hand it to the server at the first of these addresses that answers. Blocks. Raises MailError."""
    where = mail.server.host
    try:
        with _session(mail, addresses, trusted) as session:
            if mail.user is not None and password is not None:
                session.login(mail.user, password)
            session.send_message(message, mail.sender, list(mail.to))
    except smtplib.SMTPAuthenticationError as error:
        raise MailError(f"{where} does not let {mail.user} in ({error.smtp_code})") from None
    except smtplib.SMTPRecipientsRefused:
        raise MailError(f"{where} takes nothing for any of {', '.join(mail.to)}") from None
    except smtplib.SMTPResponseException as error:
        raise MailError(f"{where} answers {error.smtp_code}") from None
    except ssl.SSLError as error:
        said = getattr(error, "verify_message", "") or error.reason
        raise MailError(f"there is no TLS with {where}: {said}") from None
    except (smtplib.SMTPException, OSError, UnicodeError) as error:
        said = str(error).partition("\n")[0] if isinstance(error, smtplib.SMTPException) else type(error).__name__
        raise MailError(f"{where} cannot be told ({said})") from None


def _session(mail: Mail, addresses: Sequence[str], trusted: ssl.SSLContext) -> smtplib.SMTP:
    """A session with the server, with TLS where that is wanted: what does not offer it is not talked to."""
    session = smtplib.SMTP(timeout=TIMEOUT_S)
    session.sock = _connected(addresses, mail.server.port)
    try:
        if mail.tls == "implicit":
            session.sock = trusted.wrap_socket(session.sock, server_hostname=mail.server.host)
        _ready(session.getreply()[0], f"{mail.server.host} is not ready")
        session.ehlo_or_helo_if_needed()
        if mail.tls == "starttls":
            _ready(session.docmd("STARTTLS")[0], f"{mail.server.host} offers no STARTTLS; set tls to implicit")
            session.sock = trusted.wrap_socket(session.sock, server_hostname=mail.server.host)
            # RFC 3207: what was said before TLS counts no more.
            session.file = None
            session.helo_resp = session.ehlo_resp = None
            session.esmtp_features = {}
            session.does_esmtp = False
            session.ehlo_or_helo_if_needed()
    except BaseException:
        session.close()
        raise
    return session


def _ready(code: int, why: str) -> None:
    if code != READY:
        raise MailError(f"{why} ({code})")


def _connected(addresses: Sequence[str], port: int) -> socket.socket:
    last: OSError = OSError("no address")
    for address in addresses:
        try:
            return socket.create_connection((address, port), TIMEOUT_S)
        except OSError as error:
            last = error
    raise last
