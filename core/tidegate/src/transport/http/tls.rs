//! TLS for connections: rustls with the certificate authorities of the platform, or with those of
//! the file that `SSL_CERT_FILE` names.

use std::env;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio_rustls::TlsConnector;

use super::errors;
use super::stream::Stream;
use crate::error::Error;

/// Starts TLS on connections to servers and proxies.
#[derive(Clone)]
pub(super) struct Tls {
    /// Offers HTTP/2 and HTTP/1.1.
    to_servers: TlsConnector,
    /// Offers HTTP/1.1 only.
    to_proxies: TlsConnector,
}

/// The peer of a TLS connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    /// The server of the URL, which may speak HTTP/2.
    Server,
    /// A proxy, which is spoken to in HTTP/1.1.
    Proxy,
}

impl Tls {
    /// Reads the certificate authorities. Those of `SSL_CERT_FILE` replace those of the platform,
    /// as with OpenSSL, and `SSL_CERT_DIR` adds none to them.
    ///
    /// # Errors
    /// `Config` if the authorities cannot be read.
    pub(super) fn new() -> Result<Self, Error> {
        let unusable = |error: &dyn StdError| {
            let advice = "check SSL_CERT_FILE and SSL_CERT_DIR, which must name authorities or be unset";
            Error::config(format!("transport: {error}; {advice}"))
        };
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&error))?;
        let config = match environment_authorities()? {
            Some(authorities) => builder.with_root_certificates(authorities),
            None => builder.with_platform_verifier().map_err(|error| unusable(&error))?,
        };
        let mut to_proxies = config.with_no_client_auth();
        let mut to_servers = to_proxies.clone();
        to_servers.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        to_proxies.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { to_servers: Arc::new(to_servers).into(), to_proxies: Arc::new(to_proxies).into() })
    }

    /// Starts TLS with the host at the other end of `stream`. Returns the encrypted stream, and
    /// whether HTTP/2 was agreed on.
    ///
    /// # Errors
    /// `Connect` if the peer does not speak TLS, the handshake fails or the certificate is not
    /// trusted.
    pub(super) async fn start(
        &self,
        stream: Stream,
        host: &str,
        peer: Peer,
    ) -> Result<(Stream, bool), Error> {
        let name = ServerName::try_from(host.to_owned()).map_err(|error| errors::connect(&error))?;
        let (connector, peer) = match peer {
            Peer::Server => (&self.to_servers, "server"),
            Peer::Proxy => (&self.to_proxies, "proxy"),
        };
        let stream =
            connector.connect(name, stream).await.map_err(|error| errors::handshake(&error, peer))?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok((Stream::Tls(Box::new(stream)), is_http2))
    }
}

/// Returns the certificate authorities in the file named by `SSL_CERT_FILE`, or `None` if the
/// variable is unset or empty.
///
/// # Errors
/// `Config` if the file cannot be read, or as for [`read_authorities`].
fn environment_authorities() -> Result<Option<RootCertStore>, Error> {
    let Some(path) = env::var_os("SSL_CERT_FILE").filter(|path| !path.is_empty()) else { return Ok(None) };
    let file = std::fs::read(path).map_err(|error| unusable_file(&error))?;
    read_authorities(&file).map(Some)
}

/// Returns the certificate authorities in the contents of the file named by `SSL_CERT_FILE`. Logs a
/// warning if certificates are ignored because rustls cannot use them, as is usual for a few in a
/// large bundle.
///
/// # Errors
/// `Config` if the file is no valid PEM, or has no certificate that can be used.
fn read_authorities(file: &[u8]) -> Result<RootCertStore, Error> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(file).collect();
    let certificates = certificates.map_err(|error| unusable_file(&error))?;
    let mut authorities = RootCertStore::empty();
    match authorities.add_parsable_certificates(certificates) {
        (0, 0) => return Err(unusable_file(&"it has no certificate")),
        (0, _) => return Err(unusable_file(&"none of its certificates can be used")),
        (_, 0) => {}
        (used, ignored) => {
            tracing::warn!(used, ignored, "SSL_CERT_FILE has certificates that cannot be used");
        }
    }
    Ok(authorities)
}

/// Returns the error for a file named by `SSL_CERT_FILE` that cannot be used.
fn unusable_file(why: &dyn fmt::Display) -> Error {
    Error::config(format!("transport: SSL_CERT_FILE: {why}; name a file of PEM certificates, or unset it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    const AUTHORITY: &str = "\
-----BEGIN CERTIFICATE-----
MIIBmzCCAUGgAwIBAgIUE0HfCmXEW5VDgxeTkyq6TGttze0wCgYIKoZIzj0EAwIw
IjEgMB4GA1UEAwwXVGlkZWdhdGUgdGVzdCBhdXRob3JpdHkwIBcNMjYxMTMwMTE0
OTUxWhgPMjEyNjExMDYxMTQ5NTFaMCIxIDAeBgNVBAMMF1RpZGVnYXRlIHRlc3Qg
YXV0aG9yaXR5MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEss9M6WTOdZalA1L6
b9Zlvi3BbLmNgUQvTnIkSvfBAsDRTAn2C167ovyQ3MRbcbwzVLucnE/v/SKVNc3T
pDXOQ6NTMFEwHQYDVR0OBBYEFM5MQk5TIbMi6C96RsDYAZ7vPoqTMB8GA1UdIwQY
MBaAFM5MQk5TIbMi6C96RsDYAZ7vPoqTMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZI
zj0EAwIDSAAwRQIhAKVxRxbE+Pf6S1onKeV+yEC0fyS0a67Qhd1WuDaj6s4lAiBb
by0FYCSzFF1e1fxjvbbcVP0rhtkQU1Y9xzbhdcts2Q==
-----END CERTIFICATE-----
";
    /// A certificate of two bytes: an empty sequence.
    const UNUSABLE: &str = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";

    #[test]
    fn unusable_certificates_are_ignored_unless_no_other_remains() {
        for file in [[AUTHORITY, UNUSABLE].concat(), [UNUSABLE, AUTHORITY].concat()] {
            assert_eq!(read_authorities(file.as_bytes()).unwrap().len(), 1);
        }
        for file in ["", UNUSABLE] {
            let error = read_authorities(file.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        }
    }
}
