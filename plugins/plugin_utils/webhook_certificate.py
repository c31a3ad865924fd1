"""A certificate for a webhook's server, from an authority that signs nothing else; used by the action plugin operators."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAYS = 3650


def made(host: str) -> dict[str, str]:
    """Return `tls.crt`, `tls.key` and `ca.crt` of a server with this DNS name, as a Secret has them; the authority's key is not kept."""
    authority, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "trainlab webhook CA")])
    top = x509.BasicConstraints(ca=True, path_length=0)
    ca = _named(name, name, authority).add_extension(top, critical=True).sign(authority, hashes.SHA256())
    server = (
        _named(x509.Name([]), name, key)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(authority, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    parts = {"tls.crt": server.public_bytes(pem), "tls.key": private, "ca.crt": ca.public_bytes(pem)}
    return {part: base64.b64encode(content).decode("ascii") for part, content in parts.items()}


def _named(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=DAYS))
