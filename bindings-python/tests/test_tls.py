"""Tests that a wrapped client keeps the settings of its `ssl.SSLContext`."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import tidegate
from certificate_authority import Authority
from httpx_packages import INSTALLED, module
from provider_payloads import CHAT, MESSAGES
from test_wrap import httpx_packages_of_openai
from upstream import Exchange, Upstream, answer


class PinningSocket(ssl.SSLSocket):
    """A socket that rejects each server, as a check of the certificate's fingerprint would."""

    def do_handshake(self, *_: Any) -> None:
        raise ssl.SSLError("another fingerprint")


class PinningObject(ssl.SSLObject):
    """An `SSLObject`, which event loops use, that rejects each server."""

    def do_handshake(self) -> None:
        raise ssl.SSLError("another fingerprint")


class PinningContext(ssl.SSLContext):
    """A context that rejects each server in its own methods, without custom socket classes."""

    def wrap_socket(self, *_: Any, **__: Any) -> Any:
        raise ssl.SSLError("another fingerprint")

    wrap_bio = wrap_socket


Change = Callable[[ssl.SSLContext, Authority], object]
Server = Callable[[Authority], ssl.SSLContext]


def refuse(*_: Any, **__: Any) -> Any:
    raise ssl.SSLError("another fingerprint")


def assigned(name: str, value: Any) -> Change:
    return lambda context, _: setattr(context, name, value)


def with_flag(name: str, flag: Any) -> Change:
    return lambda context, _: setattr(context, name, getattr(context, name) | flag)


def called(name: str, *arguments: Any) -> Change:
    return lambda context, _: getattr(context, name)(*arguments)


def server_with_settings(**settings: Any) -> Server:
    return lambda authority: authority.server(**settings)


def server_after(name: str, *arguments: Any, **settings: Any) -> Server:
    def make(authority: Authority) -> ssl.SSLContext:
        context = authority.server(**settings)
        getattr(context, name)(*arguments)
        return context

    return make


def each_class(context: ssl.SSLContext, _: Authority) -> None:
    context.sslsocket_class, context.sslobject_class = PinningSocket, PinningObject


def each_method(context: Any, _: Authority) -> None:
    context.wrap_socket = context.wrap_bio = refuse


# Each setting of the client, with a server that the setting forbids.
REFUSED: dict[str, tuple[Change, Server]] = {
    "minimum_version": (
        assigned("minimum_version", ssl.TLSVersion.TLSv1_3),
        server_with_settings(maximum_version=ssl.TLSVersion.TLSv1_2),
    ),
    "maximum_version": (
        assigned("maximum_version", ssl.TLSVersion.TLSv1_2),
        server_with_settings(minimum_version=ssl.TLSVersion.TLSv1_3),
    ),
    "options": (with_flag("options", ssl.OP_NO_TLSv1_3), server_with_settings(minimum_version=ssl.TLSVersion.TLSv1_3)),
    "verify_flags": (with_flag("verify_flags", ssl.VERIFY_CRL_CHECK_LEAF), server_with_settings()),
    "set_ciphers": (
        called("set_ciphers", "ECDHE+AES256"),
        server_after("set_ciphers", "ECDHE+AES128", maximum_version=ssl.TLSVersion.TLSv1_2),
    ),
    "security_level": (called("set_ciphers", "DEFAULT:@SECLEVEL=4"), server_with_settings()),
    "set_ecdh_curve": (called("set_ecdh_curve", "secp384r1"), server_after("set_ecdh_curve", "prime256v1")),
    "sslsocket_class, sslobject_class": (each_class, server_with_settings()),
    "wrap_socket, wrap_bio": (each_method, server_with_settings()),
    "__class__": (assigned("__class__", PinningContext), server_with_settings()),
}

# Settings that the gate's own connections do not have. The test checks only that the client's
# transport is kept.
KEPT: dict[str, Change] = {
    "check_hostname": assigned("check_hostname", False),
    "verify_mode": lambda context, _: (
        setattr(context, "check_hostname", False),
        setattr(context, "verify_mode", ssl.CERT_NONE),
    ),
    "hostname_checks_common_name": assigned("hostname_checks_common_name", False),
    "post_handshake_auth": assigned("post_handshake_auth", True),
    "keylog_filename": lambda context, authority: setattr(context, "keylog_filename", authority.folder / "keys"),
    "_msg_callback": assigned("_msg_callback", lambda *_: None),
    "load_cert_chain": lambda context, authority: context.load_cert_chain(authority.certificate()),
    "load_verify_locations": lambda context, _: trustme.CA().configure_trust(context),
    "a revocation list": lambda context, authority: context.load_verify_locations(authority.revocations()),
    "set_psk_client_callback": called("set_psk_client_callback", lambda _: ("identity", b"k" * 32)),
    # New in Python 3.15.
    "set_groups": called("set_groups", "P-384"),
    "set_client_sigalgs": called("set_client_sigalgs", "ecdsa_secp256r1_sha256"),
    "set_server_sigalgs": called("set_server_sigalgs", "ecdsa_secp256r1_sha256"),
    "set_ciphersuites": called("set_ciphersuites", "TLS_AES_128_GCM_SHA256"),
}

# Settings that a client context rejects, or that do not affect its connections.
OF_SERVERS = {"num_tickets", "sni_callback", "set_servername_callback", "load_dh_params", "set_psk_server_callback"}
# httpx sets its protocols before each handshake.
OVERWRITTEN = {"set_alpn_protocols", "set_npn_protocols"}
# Both contexts have the environment's authorities.
OF_ENVIRONMENT = {"load_default_certs", "set_default_verify_paths"}
READ_ONLY = {"cert_store_stats", "get_ca_certs", "get_ciphers", "get_groups", "protocol", "session_stats"}


def test_tables_list_every_setting_of_a_context() -> None:
    tabled = {part for name in (*REFUSED, *KEPT) for part in name.split(", ")}
    tabled |= OF_SERVERS | OVERWRITTEN | OF_ENVIRONMENT | READ_ONLY
    assert {name for name in dir(ssl.SSLContext) if not name.startswith("_")} <= tabled


def changed(name: str, authority: Authority, change: Change) -> ssl.SSLContext:
    """Returns the default TLS context of the package `name` with one change."""
    context: ssl.SSLContext = module(name).create_ssl_context()
    try:
        change(context, authority)
    except AttributeError as error:
        pytest.skip(f"not in this Python: {error}")
    return context


def transport_of(client: Any) -> str:
    return "native" if client._transport.custom is None else "kept"


def ask(sdk: Any) -> Any:
    return sdk.chat.completions.create(model="small", messages=MESSAGES)


def secure(upstream: Upstream) -> str:
    return upstream.url.replace("http:", "https:")


@pytest.mark.filterwarnings("ignore:ssl.OP_NO:DeprecationWarning")
@pytest.mark.parametrize("setting", REFUSED)
@pytest.mark.parametrize("name", httpx_packages_of_openai())
async def test_wrapped_client_rejects_what_the_bare_client_rejects(
    name: str, setting: str, authority: Authority, one_attempt: tidegate.Gate
) -> None:
    change, server = REFUSED[setting]
    context = changed(name, authority, change)
    with Upstream(tls=server(authority)) as upstream, module(name).Client(verify=context) as http:
        upstream.handler = answer(CHAT)
        options: dict[str, Any] = {"base_url": secure(upstream), "api_key": "k", "max_retries": 0}
        bare = openai.OpenAI(http_client=http, **options)
        for sdk in (bare, one_attempt.wrap(bare)):
            with pytest.raises(openai.APIConnectionError):
                ask(sdk)
        async with module(name).AsyncClient(verify=context) as ahttp:
            abare = openai.AsyncOpenAI(http_client=ahttp, **options)
            for asdk in (abare, one_attempt.wrap(abare)):
                with pytest.raises(openai.APIConnectionError):
                    await ask(asdk)
        assert upstream.exchanges == [], "no key was sent"


@pytest.mark.filterwarnings("ignore:ssl.OP_NO:DeprecationWarning")
@pytest.mark.parametrize("setting", [*REFUSED, *KEPT])
@pytest.mark.parametrize("name", httpx_packages_of_openai())
def test_client_with_a_custom_context_keeps_its_transport(
    name: str, setting: str, authority: Authority, gate: tidegate.Gate
) -> None:
    change = KEPT.get(setting) or REFUSED[setting][0]
    with module(name).Client(verify=changed(name, authority, change)) as http:
        sdk = openai.OpenAI(api_key="k", http_client=http)
        assert transport_of(gate.wrap(sdk)._client) == "kept"
        with pytest.raises(TypeError, match="custom TLS settings"):
            gate.wrap(sdk, transport="native")


@pytest.mark.parametrize("name", httpx_packages_of_openai())
async def test_client_with_the_default_context_uses_the_gate(
    name: str, authority: Authority, one_attempt: tidegate.Gate
) -> None:
    with Upstream(tls=authority.server()) as upstream:
        upstream.handler = answer(CHAT)
        with module(name).Client() as http:
            sdk = openai.OpenAI(base_url=secure(upstream), api_key="k", http_client=http)
            assert ask(sdk).id == "chatcmpl-1"
            wrapped = one_attempt.wrap(sdk)
            assert transport_of(wrapped._client) == "native"
            assert ask(wrapped).id == "chatcmpl-1"
        async with module(name).AsyncClient() as ahttp:
            asdk = one_attempt.wrap(openai.AsyncOpenAI(base_url=secure(upstream), api_key="k", http_client=ahttp))
            assert transport_of(asdk._client) == "native"
            assert (await ask(asdk)).id == "chatcmpl-1"


@pytest.mark.parametrize("name", httpx_packages_of_openai())
def test_unusable_certificate_of_the_environment_is_ignored(name: str, authority: Authority) -> None:
    """The file of authorities may contain certificates that OpenSSL reads and rustls does not.

    This one names two different signature algorithms.
    """
    usable = authority.ca.cert_pem.bytes().decode()
    certificate = ssl.PEM_cert_to_DER_cert(usable)
    ecdsa_with_sha256, ecdsa_with_sha384 = bytes.fromhex("2a8648ce3d040302"), bytes.fromhex("2a8648ce3d040303")
    assert certificate.count(ecdsa_with_sha256) == 2
    unusable = ssl.DER_cert_to_PEM_cert(certificate.replace(ecdsa_with_sha256, ecdsa_with_sha384, 1))
    authority.file.write_text(unusable + usable)
    gate = tidegate.Gate(defaults={"retry": {"attempts": 1}})
    with Upstream(tls=authority.server()) as upstream, module(name).Client() as http:
        upstream.handler = answer(CHAT)
        wrapped = gate.wrap(openai.OpenAI(base_url=secure(upstream), api_key="k", http_client=http))
        assert transport_of(wrapped._client) == "native"
        assert ask(wrapped).id == "chatcmpl-1"


def certificate_with_curve(curve: ec.EllipticCurve, folder: Path) -> str:
    """Writes a client certificate whose key is on the given curve. Returns the path of its file."""
    key = ec.generate_private_key(curve)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "client")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(dt.datetime(2020, 1, 1, tzinfo=dt.timezone.utc))
    builder = builder.not_valid_after(dt.datetime(2120, 1, 1, tzinfo=dt.timezone.utc))
    made = builder.sign(key, hashes.SHA256())
    path = folder / f"{curve.name}.pem"
    kind, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    path.write_bytes(key.private_bytes(kind, form, serialization.NoEncryption()) + made.public_bytes(kind))
    return str(path)


@pytest.mark.parametrize("curve", [ec.SECP224R1(), ec.SECP521R1(), ec.SECP256K1(), ec.BrainpoolP256R1()])
def test_client_certificate_is_detected_for_any_key(
    curve: ec.EllipticCurve, authority: Authority, gate: tidegate.Gate
) -> None:
    (name, *_) = httpx_packages_of_openai()
    context = changed(name, authority, called("load_cert_chain", certificate_with_curve(curve, authority.folder)))
    with module(name).Client(verify=context) as http:
        assert transport_of(gate.wrap(openai.OpenAI(api_key="k", http_client=http))._client) == "kept"


@pytest.mark.parametrize("way", ["a context", "cert="])
@pytest.mark.parametrize("name", httpx_packages_of_openai())
@pytest.mark.filterwarnings("ignore:.*cert=.*:DeprecationWarning")
def test_wrapped_client_presents_its_certificate(
    name: str, way: str, authority: Authority, one_attempt: tidegate.Gate
) -> None:
    context = changed(name, authority, called("load_cert_chain", authority.certificate()))
    own: dict[str, Any] = {"verify": context} if way == "a context" else {"cert": authority.certificate()}
    with Upstream(tls=authority.server(verify_mode=ssl.CERT_REQUIRED)) as upstream, module(name).Client(**own) as http:
        upstream.handler = answer(CHAT)
        sdk = openai.OpenAI(base_url=secure(upstream), api_key="k", http_client=http)
        assert ask(one_attempt.wrap(sdk)).id == "chatcmpl-1"
        with pytest.raises(TypeError, match="client certificate"):
            one_attempt.wrap(sdk, transport="native")


@pytest.mark.parametrize("name", httpx_packages_of_openai())
def test_key_log_of_the_environment_is_written(
    name: str, authority: Authority, one_attempt: tidegate.Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = authority.folder / "keys"
    monkeypatch.setenv("SSLKEYLOGFILE", str(keys))
    with Upstream(tls=authority.server()) as upstream, module(name).Client() as http:
        upstream.handler = answer(CHAT)
        ask(one_attempt.wrap(openai.OpenAI(base_url=secure(upstream), api_key="k", http_client=http)))
    assert "CLIENT_HANDSHAKE_TRAFFIC_SECRET" in keys.read_text()


@pytest.mark.parametrize("name", httpx_packages_of_openai())
def test_tls_settings_count_with_an_http_base_url(name: str, authority: Authority, one_attempt: tidegate.Gate) -> None:
    """Custom TLS settings are kept if the base URL is http.

    A redirect or an absolute URL may use https nevertheless.
    """
    change, server = REFUSED["minimum_version"]
    with Upstream(tls=server(authority)) as upstream, Upstream() as plain:
        http = module(name).Client(verify=changed(name, authority, change), follow_redirects=True)
        wrapped = one_attempt.wrap(openai.OpenAI(base_url=plain.url, api_key="k", http_client=http))
        plain.handler = answer({}, status=307, location=secure(upstream))
        for url in (plain.url, secure(upstream)):
            with pytest.raises(module(name).ConnectError):
                wrapped._client.get(url, headers={"authorization": "Bearer k"})
        assert upstream.exchanges == []
        http.close()


@pytest.mark.parametrize("name", httpx_packages_of_openai())
def test_tls_settings_of_a_mount_are_kept(
    name: str, authority: Authority, gate: tidegate.Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    context = changed(name, authority, REFUSED["minimum_version"][0])
    transports = (
        module(name).HTTPTransport(verify=context),
        module(name).HTTPTransport(verify=context, proxy="http://127.0.0.1:1"),
    )
    for transport in transports:
        with module(name).Client(mounts={"https://": transport}) as http:
            assert transport_of(gate.wrap(openai.OpenAI(api_key="k", http_client=http))._client) == "kept"


@pytest.mark.parametrize("name", httpx_packages_of_openai())
def test_client_with_unlistable_authorities_keeps_its_transport(
    name: str, authority: Authority, gate: tidegate.Gate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A client whose context has a directory of authorities keeps its own transport.

    OpenSSL reads such a directory only during handshakes, so its authorities cannot be compared.
    """
    with module(name).Client(verify=ssl.create_default_context(capath=str(tmp_path))) as http:
        sdk = openai.OpenAI(api_key="k", http_client=http)
        assert transport_of(gate.wrap(sdk)._client) == "kept"
        monkeypatch.delenv("SSL_CERT_FILE")
        monkeypatch.setenv("SSL_CERT_DIR", str(authority.folder))
        assert transport_of(tidegate.Gate().wrap(sdk)._client) == "kept"


@pytest.mark.parametrize("name", httpx_packages_of_openai())
def test_authorities_of_the_environment_are_read_again(
    name: str, authority: Authority, gate: tidegate.Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    sdk = openai.OpenAI(api_key="k", http_client=module(name).Client())
    assert transport_of(gate.wrap(sdk)._client) == "native"
    trustme.CA().cert_pem.write_to_path(str(authority.file))
    with module(name).Client() as http:
        assert transport_of(tidegate.Gate().wrap(openai.OpenAI(api_key="k", http_client=http))._client) == "native"
    monkeypatch.delenv("SSL_CERT_FILE")
    assert transport_of(tidegate.Gate().wrap(sdk)._client) == "kept"
    sdk.close()


async def assert_refused_by_all(name: str, gate: tidegate.Gate, url: str, **settings: Any) -> None:
    """Checks that httpx's own clients, gate clients and wrapped clients reject the certificate.

    `settings` are arguments of each new client.
    """
    httpx = module(name)
    clients = [httpx.Client(**settings), gate.httpx_client(family=name, **settings)]
    aclients = [httpx.AsyncClient(**settings), gate.httpx_async_client(family=name, **settings)]
    if name in httpx_packages_of_openai():
        clients.append(gate.wrap(openai.OpenAI(api_key="k", http_client=clients[0]))._client)
        aclients.append(gate.wrap(openai.AsyncOpenAI(api_key="k", http_client=aclients[0]))._client)
    for client in clients:
        with pytest.raises(httpx.ConnectError):
            client.get(url, headers={"authorization": "Bearer k"})
    for aclient in aclients:
        with pytest.raises(httpx.ConnectError):
            await aclient.get(url, headers={"authorization": "Bearer k"})
    # Wrapped clients first, because closing the original closes a kept transport.
    for client, aclient in zip(reversed(clients), reversed(aclients), strict=True):
        client.close()
        await aclient.aclose()


def native_is_refused(name: str, gate: tidegate.Gate, reason: str, **settings: Any) -> None:
    for make in (gate.httpx_client, gate.httpx_async_client):
        with pytest.raises(TypeError, match=reason):
            make(family=name, transport="native", **settings)
    if name in httpx_packages_of_openai():
        with module(name).Client(**settings) as http, pytest.raises(TypeError, match=reason):
            gate.wrap(openai.OpenAI(api_key="k", http_client=http), transport="native")


def another_authority(folder: Path) -> Authority:
    """Returns a new authority. Its file is in `folder`, which no environment variable names."""
    folder.mkdir()
    other = Authority(trustme.CA(), folder)
    other.ca.cert_pem.write_to_path(str(other.file))
    return other


@pytest.mark.usefixtures("authority")
@pytest.mark.parametrize("name", INSTALLED)
async def test_directory_of_authorities_beside_a_file_is_ignored(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = another_authority(tmp_path / "others")
    monkeypatch.setenv("SSL_CERT_DIR", str(other.folder))
    gate = tidegate.Gate(defaults={"retry": {"attempts": 1}})
    with Upstream(tls=other.server()) as upstream:
        await assert_refused_by_all(name, gate, secure(upstream))
        assert upstream.exchanges == []
    assert transport_of(gate.httpx_client(family=name)) == "native"


@pytest.mark.parametrize("name", INSTALLED)
async def test_file_in_a_directory_counts_only_by_its_hashed_name(
    name: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    monkeypatch.setenv("SSL_CERT_DIR", str(authority.folder))
    gate = tidegate.Gate(defaults={"retry": {"attempts": 1}})
    with Upstream(tls=authority.server()) as upstream:
        await assert_refused_by_all(name, gate, secure(upstream))
        assert upstream.exchanges == []
    native_is_refused(name, gate, "authorities from SSL_CERT_DIR")


@pytest.mark.usefixtures("authority")
@pytest.mark.parametrize("name", INSTALLED)
def test_empty_directory_variable_is_ignored(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_DIR", "")
    assert transport_of(tidegate.Gate().httpx_client(family=name)) == "native"


@pytest.mark.parametrize("name", INSTALLED)
async def test_client_without_trust_env_ignores_authorities_of_the_environment(
    name: str, authority: Authority, one_attempt: tidegate.Gate
) -> None:
    with Upstream(tls=authority.server()) as upstream:
        await assert_refused_by_all(name, one_attempt, secure(upstream), trust_env=False)
        assert upstream.exchanges == []
    native_is_refused(name, one_attempt, "trust_env=False.*SSL_CERT_FILE", trust_env=False)


@pytest.mark.parametrize("change", ["another file", "other content", "removed"])
@pytest.mark.parametrize("name", INSTALLED)
async def test_authorities_replaced_after_the_gate_opened_are_not_trusted(
    name: str, change: str, authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = another_authority(tmp_path / "others")
    # Set explicitly, because the clock may be too coarse to tell the two files apart.
    os.utime(authority.file, (0, 0))
    gate = tidegate.Gate(defaults={"retry": {"attempts": 1}})
    if change == "another file":
        monkeypatch.setenv("SSL_CERT_FILE", str(other.file))
    elif change == "other content":
        authority.file.write_bytes(other.file.read_bytes())
    else:
        monkeypatch.delenv("SSL_CERT_FILE")
    with Upstream(tls=authority.server()) as upstream:
        await assert_refused_by_all(name, gate, secure(upstream))
        assert upstream.exchanges == []
    native_is_refused(name, gate, "authorities from a changed environment")


@pytest.mark.parametrize("name", httpx_packages_of_openai())
def test_client_of_one_gate_gets_no_authorities_of_another(
    name: str, authority: Authority, gate: tidegate.Gate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert authority.file.exists()
    with gate.httpx_client(family=name) as http:
        sdk = openai.OpenAI(api_key="k", http_client=http)
        assert transport_of(tidegate.Gate().wrap(sdk)._client) == "native"
        monkeypatch.setenv("SSL_CERT_FILE", str(another_authority(tmp_path / "others").file))
        with pytest.raises(TypeError, match="other TLS authorities: wrap the original"):
            tidegate.Gate().wrap(sdk)


@pytest.fixture
def system_verifier(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001 - to be replaced
    """Makes truststore's context the default of httpx2, as on macOS."""
    # Imported before the change, because its imports depend on the system too.
    pytest.importorskip("truststore")
    monkeypatch.delenv("SSL_CERT_FILE")
    monkeypatch.setattr("platform.system", lambda: "Darwin")


@pytest.mark.skipif("httpx2" not in httpx_packages_of_openai(), reason="httpx2 uses truststore")
@pytest.mark.usefixtures("system_verifier")
@pytest.mark.parametrize("method", ["wrap_socket", "wrap_bio"])
def test_methods_of_a_truststore_context_are_kept(method: str, authority: Authority, gate: tidegate.Gate) -> None:
    context = changed("httpx2", authority, assigned(method, refuse))
    assert type(context).__module__.startswith("truststore.")
    with module("httpx2").Client(verify=context) as http:
        sdk = openai.OpenAI(api_key="k", http_client=http)
        assert transport_of(gate.wrap(sdk)._client) == "kept"
        with pytest.raises(TypeError, match="custom TLS settings"):
            gate.wrap(sdk, transport="native")
    with module("httpx2").Client() as http:
        assert transport_of(gate.wrap(openai.OpenAI(api_key="k", http_client=http))._client) == "native"


@pytest.mark.skipif("httpx2" not in httpx_packages_of_openai(), reason="httpx2 uses truststore")
@pytest.mark.usefixtures("system_verifier")
def test_system_verifier_is_the_default_if_httpx2_uses_it(authority: Authority, gate: tidegate.Gate) -> None:
    with module("httpx2").Client() as http:
        assert transport_of(gate.wrap(openai.OpenAI(api_key="k", http_client=http))._client) == "native"
    for setting in ("minimum_version", "set_ciphers", "load_cert_chain", "load_verify_locations"):
        change = KEPT.get(setting) or REFUSED[setting][0]
        with module("httpx2").Client(verify=changed("httpx2", authority, change)) as http:
            assert transport_of(gate.wrap(openai.OpenAI(api_key="k", http_client=http))._client) == "kept"


@pytest.mark.parametrize("name", INSTALLED)
def test_new_client_keeps_its_tls_context(name: str, authority: Authority, one_attempt: tidegate.Gate) -> None:
    change, server = REFUSED["minimum_version"]
    context = changed(name, authority, change)
    with Upstream(tls=server(authority)) as upstream, one_attempt.httpx_client(family=name, verify=context) as http:
        with pytest.raises(module(name).ConnectError):
            http.get(secure(upstream), headers={"authorization": "Bearer k"})
        if name in httpx_packages_of_openai():
            again = one_attempt.wrap(openai.OpenAI(base_url=secure(upstream), api_key="k", http_client=http))
            with pytest.raises(openai.APIConnectionError):
                ask(again)
        assert upstream.exchanges == []


async def test_connections_that_the_server_has_closed_are_not_used(authority: Authority) -> None:
    # More than a task may check before the runtime makes it pause.
    count = 150
    writers: list[asyncio.StreamWriter] = []

    async def answer_together(exchange: Exchange) -> None:
        writers.append(exchange.writer)
        if len(writers) == count:
            all_have_arrived.set()
        await all_have_arrived.wait()
        await answer(CHAT)(exchange)

    def close_all() -> None:
        for writer in writers:
            writer.close()
        are_closed.set()

    gate = tidegate.Gate(defaults={"cap": 2 * count, "retry": {"attempts": 1}})
    with Upstream(tls=authority.server()) as upstream:
        all_have_arrived, are_closed = upstream.event(), threading.Event()
        upstream.handler = answer_together
        url = secure(upstream) + "/v1/chat/completions"
        async with gate.httpx_async_client(timeout=60) as http:
            await asyncio.gather(*(http.post(url, json={"model": "small"}) for _ in range(count)))
            upstream.call(close_all)
            assert await asyncio.to_thread(are_closed.wait, 30)
            assert (await http.post(url, json={"model": "small"})).json() == CHAT
