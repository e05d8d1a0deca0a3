//! Reads the credential with which a request is sent.

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Uri};

/// The headers that carry credentials, in addition to `authorization` and Google's `?key=`.
/// Credentials are never stored. Within the process they are hashed with a random key. With
/// `share`, the processes must agree, so the URL, credential and model are hashed without a key
/// there.
const CREDENTIALS: [&str; 4] = ["x-api-key", "api-key", "x-goog-api-key", "ocp-apim-subscription-key"];

/// Returns the part of a request's credential that is the same in all calls with it. `None` if the
/// request has no credential.
pub(super) fn stable_credential<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a [u8]> {
    credential(uri, headers).map(stable_part)
}

/// Returns the credential of a request: the value of the first header of [`CREDENTIALS`], of
/// `authorization`, or of the query parameter `key`. `None` if there is none.
fn credential<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a [u8]> {
    let header =
        CREDENTIALS.iter().find_map(|name| headers.get(*name)).or_else(|| headers.get(AUTHORIZATION));
    header.map(HeaderValue::as_bytes).or_else(|| {
        let key = uri.query()?.split('&').find_map(|pair| pair.strip_prefix("key="))?;
        Some(key.as_bytes())
    })
}

/// Returns the part of a credential that is the same in all calls with it.
///
/// For AWS signatures, which differ in each call, this is the name of the access key. JWTs,
/// Google's access tokens and Bedrock's short-term keys are replaced within hours, so all of one
/// kind count as one credential.
fn stable_part(credential: &[u8]) -> &[u8] {
    let text = std::str::from_utf8(credential).unwrap_or_default();
    if let Some((_, key)) = text.split_once("Credential=").filter(|_| text.starts_with("AWS4-")) {
        return key.split(['/', ',']).next().unwrap_or_default().as_bytes();
    }
    let token = text.rsplit(' ').next().unwrap_or_default();
    if token.starts_with("eyJ") && token.matches('.').count() == 2 {
        return b"jwt";
    }
    let short_lived = ["ya29.", "bedrock-api-key-"].into_iter().find(|prefix| token.starts_with(prefix));
    short_lived.map_or(credential, str::as_bytes)
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Uri};

    use super::{credential, stable_part};

    #[test]
    fn key_in_the_query_is_the_credential_if_no_header_has_one() {
        let uri: Uri = "https://g.example/v1beta/models/m:generateContent?alt=sse&key=k1".parse().unwrap();
        assert_eq!(credential(&uri, &HeaderMap::new()), Some(&b"k1"[..]));
        let headers = [("x-goog-api-key".parse().unwrap(), "k2".parse().unwrap())].into_iter().collect();
        assert_eq!(credential(&uri, &headers), Some(&b"k2"[..]));
        assert_eq!(credential(&"/v1?monkey=k".parse().unwrap(), &HeaderMap::new()), None);
    }

    #[test]
    fn signatures_and_short_lived_tokens_do_not_make_new_targets() {
        let signed = |day: &str, signature: &str| {
            format!(
                "AWS4-HMAC-SHA256 Credential=AKIA1/{day}/us-east-1/bedrock/aws4_request, SignedHeaders=host, Signature={signature}"
            )
        };
        assert_eq!(
            stable_part(signed("20260101", "a").as_bytes()),
            stable_part(signed("20260102", "b").as_bytes())
        );
        assert_eq!(
            stable_part(b"Bearer eyJhbGci.eyJpc3Mi.c2ln"),
            stable_part(b"Bearer eyJhbGci.eyJhdWQi.c2lo")
        );
        assert_eq!(stable_part(b"Bearer ya29.a0Af"), stable_part(b"Bearer ya29.c.b0Ag"));
        assert_eq!(stable_part(b"Bearer bedrock-api-key-YWE"), stable_part(b"Bearer bedrock-api-key-YmI"));
        assert_ne!(stable_part(b"Bearer sk-1"), stable_part(b"Bearer sk-2"));
    }
}
