//! Creates the request of a call to a fallback target. Only the address, the model, the credential
//! and the headers change. The rest of the body and of the path stays the same, byte for byte.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, Request, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::header_allowlist::{retain_headers, retain_query};
use crate::body::RequestBody;
use crate::credential::Credential;
use crate::transport::Foreign;
use tidegate_protocol::Dialect;
use tidegate_protocol::base_url::BaseUrl;
use tidegate_protocol::json_edit::{Object, quoted};
use tidegate_protocol::request::model_in_path;
use tidegate_protocol::server::same_server;
use tidegate_protocol::signed_or_compressed::{is_compressed, is_signed};

/// The characters that are percent-encoded in a path segment: all except letters, digits and
/// `-._~`.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The request as the caller sent it. The request for each fallback target is created from it.
pub(super) struct Original {
    pub(super) parts: Parts,
    pub(super) body: RequestBody,
}

/// What changes in a request that is sent to a fallback target: its address, model, credential and
/// headers.
pub(super) struct Address {
    /// The base URLs of the target. Empty if the target is configured without URLs, by the model
    /// name alone.
    pub(super) bases: Vec<BaseUrl>,
    /// The model that replaces the model of the request. `None` leaves the model unchanged.
    pub(super) model: Option<Arc<str>>,
    /// The target's own credential, from `key_env`. If `None`, the request keeps the caller's
    /// credential, which is sent to the caller's own server only.
    pub(super) credential: Option<Credential>,
    /// `true` if the target is a pool. Its replica is selected later, so the server is treated as
    /// different from the caller's.
    pub(super) is_pool: bool,
    /// Headers of the caller that the target receives in addition to the allowlist
    /// (`header_allowlist.rs`).
    pub(super) forward_headers: Vec<HeaderName>,
}

impl Address {
    /// Creates the request to this target. `first_bases` are the base URLs of the target that the
    /// caller sent the call to. `dialect` determines the header that carries the credential.
    ///
    /// # Errors
    /// The reason why the request cannot be created. It contains no part of the request.
    pub(super) fn request(
        &self,
        original: &Original,
        first_bases: &[BaseUrl],
        dialect: Dialect,
    ) -> Result<Request<RequestBody>, &'static str> {
        let parts = &original.parts;
        // A client's own transport sends the client's request, so a changed copy would have no
        // effect.
        if parts.extensions.get::<Foreign>().is_some() {
            return Err("its client uses its own transport");
        }
        if is_signed(&parts.headers) {
            return Err("the request is signed for the first target");
        }
        let body = original.body.try_clone().ok_or("its body is an upload, which can be read only once")?;
        let mut made = Request::from_parts(parts.clone(), body);
        let mut uri = self
            .rebase(&parts.uri, first_bases)
            .ok_or("its URL cannot be moved below that of the fallback target")?;
        if let Some(model) = &self.model {
            uri = self.replace_model(&mut made, uri, model)?;
        }
        // Credentials can have any name, so another server receives an allowlist only.
        if self.credential.is_some() || self.is_pool || !same_server(&uri, &parts.uri) {
            retain_headers(made.headers_mut(), &self.forward_headers);
            uri = without_credentials(&uri).ok_or("the caller's key cannot be removed from its URL")?;
        }
        if let Some(credential) = &self.credential {
            credential.write(made.headers_mut(), &uri, dialect);
        }
        if uri.authority() != parts.uri.authority() {
            made.headers_mut().remove(HOST);
        }
        *made.uri_mut() = uri;
        Ok(made)
    }

    /// Moves `uri` to this target: replaces its base URL, which is one of `first_bases`, with the
    /// first base URL of this target. Returns `uri` unchanged if it is already below a base URL of
    /// this target, or if the target has none. Returns `None` if `uri` cannot be moved.
    fn rebase(&self, uri: &Uri, first_bases: &[BaseUrl]) -> Option<Uri> {
        let Some(first) = self.bases.first().filter(|_| !self.bases.iter().any(|base| base.contains(uri)))
        else {
            return Some(uri.clone());
        };
        first.rebase(uri, first_bases.iter().find(|base| base.contains(uri)))
    }

    /// Replaces the model in the body of `made` and in the path of `uri`. Returns the new URL.
    ///
    /// # Errors
    /// The reason why the model cannot be replaced.
    fn replace_model(
        &self,
        made: &mut Request<RequestBody>,
        uri: Uri,
        model: &str,
    ) -> Result<Uri, &'static str> {
        let named = model_in_path(uri.path());
        if let Some(body) = with_model(made.headers(), made.body().bytes(), model, named.is_some())? {
            if made.headers().contains_key(CONTENT_LENGTH) {
                made.headers_mut().insert(CONTENT_LENGTH, body.len().into());
            }
            *made.body_mut() = Bytes::from(body).into();
        }
        let Some(range) = named else { return Ok(uri) };
        let mut path = uri.path().to_owned();
        path.replace_range(range, &utf8_percent_encode(model, SEGMENT).to_string());
        with_path_and_query(&uri, &path, uri.query())
            .ok_or("the model of the fallback target cannot be written into its path")
    }
}

/// Returns the JSON body with `model` as its model. `in_path` is `true` if the path of the URL
/// contains a model. Returns `None` if the body stays unchanged because only the path contains the
/// model.
///
/// # Errors
/// The reason why the model in the body cannot be replaced.
fn with_model(
    headers: &HeaderMap,
    body: Option<&Bytes>,
    model: &str,
    in_path: bool,
) -> Result<Option<Vec<u8>>, &'static str> {
    if is_compressed(headers) {
        return if in_path {
            Ok(None)
        } else {
            Err("its body is compressed, so its model cannot be replaced")
        };
    }
    let object = body.and_then(|body| Object::read(body));
    match object {
        Some(object) if in_path && object.last("model").is_none() => Ok(None),
        Some(object) => Ok(Some(object.set("model", &quoted(model)))),
        None if in_path => Ok(None),
        None => Err("its body is not a JSON object, so its model cannot be replaced"),
    }
}

/// Returns the URL without the user, the password, and the query parameters that are not on the
/// allowlist. Returns `None` if the result is not a valid URL.
fn without_credentials(uri: &Uri) -> Option<Uri> {
    let query = uri.query().map(retain_query).filter(|query| !query.is_empty());
    let mut parts = with_path_and_query(uri, uri.path(), query.as_deref())?.into_parts();
    let authority = parts.authority.as_ref().map(Authority::as_str).unwrap_or_default();
    if let Some((_, host)) = authority.rsplit_once('@') {
        parts.authority = Some(host.parse().ok()?);
    }
    Uri::from_parts(parts).ok()
}

/// Returns the URL with this path and query. Returns `None` if the result is not a valid URL.
fn with_path_and_query(uri: &Uri, path: &str, query: Option<&str>) -> Option<Uri> {
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(format!("{path}{query}").parse().ok()?);
    Uri::from_parts(parts).ok()
}
