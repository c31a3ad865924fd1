"""A certificate for a webhook's server, from an authority that signs nothing else; used by the action plugin operators."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

DAYS = 3650


def made(host: str) -> dict[str, str]:
    """Return `tls.crt`, `tls.key` and `ca.crt` of a server with this DNS name, as a Secret has them; the authority's key is not kept."""
    # ansible-core brings it, and `ansible-test sanity` imports this file without it
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    authority, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)

    def named(subject: list[Any], public: Any) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder().subject_name(x509.Name(subject)).issuer_name(x509.Name(issuer))
        builder = builder.public_key(public).serial_number(x509.random_serial_number())
        return builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=DAYS))

    issuer = [x509.NameAttribute(x509.NameOID.COMMON_NAME, "trainlab webhook CA")]
    top = x509.BasicConstraints(ca=True, path_length=0)
    ca = named(issuer, authority.public_key()).add_extension(top, critical=True).sign(authority, hashes.SHA256())
    names = x509.SubjectAlternativeName([x509.DNSName(host)])
    usage = x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH])
    server = named([], key.public_key()).add_extension(names, critical=True).add_extension(usage, critical=False)
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    signed = server.sign(authority, hashes.SHA256()).public_bytes(pem)
    parts = {"tls.crt": signed, "tls.key": private, "ca.crt": ca.public_bytes(pem)}
    return {part: base64.b64encode(content).decode("ascii") for part, content in parts.items()}
