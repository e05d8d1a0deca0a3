"""A certificate authority for tests of TLS."""

from __future__ import annotations

import datetime as dt
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization


@dataclass
class Authority:
    """A certificate authority that is created for a test, and the folder of its files."""

    ca: trustme.CA
    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "ca.pem"

    def server(self, **settings: Any) -> ssl.SSLContext:
        """Returns a TLS context for a server, with a certificate of this authority for 127.0.0.1.

        `settings` are attributes to set on the context.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert("127.0.0.1").configure_cert(context)
        self.ca.configure_trust(context)
        for name, value in settings.items():
            setattr(context, name, value)
        return context

    def certificate(self) -> str:
        """Writes a client certificate and its key to a file. Returns the path of the file."""
        path = self.folder / "client.pem"
        self.ca.issue_cert("client").private_key_and_cert_chain_pem.write_to_path(str(path))
        return str(path)

    def revocations(self) -> str:
        """Writes an empty certificate revocation list to a file. Returns the path of the file."""
        issuer = x509.load_pem_x509_certificate(self.ca.cert_pem.bytes())
        key: Any = serialization.load_pem_private_key(self.ca.private_key_pem.bytes(), None)
        builder = x509.CertificateRevocationListBuilder(
            issuer_name=issuer.subject,
            last_update=dt.datetime(2020, 1, 1, tzinfo=dt.timezone.utc),
            next_update=dt.datetime(2120, 1, 1, tzinfo=dt.timezone.utc),
        )
        path = self.folder / "revoked.pem"
        path.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return str(path)
