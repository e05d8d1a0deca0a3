//! Tests of multipart forms and compressed bodies, which the test vectors cannot express. Plain
//! bodies are tested by the vectors in `tests/vectors`.

use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use http::{HeaderMap, HeaderValue, Method, Uri};
use proptest::prelude::*;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::decompress::MAX_DECOMPRESSED;
use super::*;

fn read(path: &'static str, headers: &[(&'static str, &str)], body: Option<&[u8]>) -> RequestFacts {
    let headers: HeaderMap = headers
        .iter()
        .map(|(name, value)| {
            ((*name).parse().expect("a name"), HeaderValue::from_str(value).expect("a value"))
        })
        .collect();
    RequestFacts::read(&Method::POST, &Uri::from_static(path), &headers, body)
}

fn chat(coding: Option<&str>, body: &[u8]) -> RequestFacts {
    let headers: Vec<_> = coding.map(|coding| ("content-encoding", coding)).into_iter().collect();
    read("/v1/chat/completions", &headers, Some(body))
}

fn written<W: Write>(
    mut encoder: W,
    body: &[u8],
    finish: impl FnOnce(W) -> std::io::Result<Vec<u8>>,
) -> Vec<u8> {
    encoder.write_all(body).and_then(|()| finish(encoder)).expect("written to memory")
}

fn coded(coding: &str, body: &[u8]) -> Vec<u8> {
    let level = Compression::default();
    match coding {
        "gzip" => written(GzEncoder::new(Vec::new(), level), body, GzEncoder::finish),
        "deflate" => written(ZlibEncoder::new(Vec::new(), level), body, ZlibEncoder::finish),
        "raw deflate" => written(DeflateEncoder::new(Vec::new(), level), body, DeflateEncoder::finish),
        "zstd" => compress_to_vec(body, CompressionLevel::Fastest),
        _ => panic!("no coding {coding}"),
    }
}

fn unhex(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("ASCII"));
    digits.map(|pair| u8::from_str_radix(pair, 16).expect("two hexadecimal digits")).collect()
}

/// [`BROTLI_OF`] as compressed by Node's `zlib.brotliCompressSync`, in hexadecimal digits. The
/// crates used here have no Brotli encoder.
const BROTLI: &str = "1b660050ac0e6c97794c98880857f7dc5b8e27b5c8ded6cd6c93ab6b1d96aebe2d52f635b745d8e4f0a448d89b639c088cdbbade3e08ec01d7aa84548c4b084d100f1830bdee3a4bc0c3d306bf44249eec407c07";
const BROTLI_OF: &[u8] = br#"{"model":"m","stream":true,"max_tokens":7,"messages":[{"role":"user","content":"hello, hello, hello"}]}"#;

/// 200 MiB of zeros, compressed and written in the same way as [`BROTLI`].
const BROTLI_BOMB: &str = include_str!("tests/brotli_bomb.hex");

#[test]
fn compressed_body_yields_the_same_facts() {
    let plain = chat(None, BROTLI_OF);
    assert_eq!((plain.model.as_deref(), plain.stream), (Some("m"), true));
    assert_eq!(chat(Some("br"), &unhex(BROTLI)), plain);
    for coding in ["gzip", "deflate", "raw deflate", "zstd"] {
        let name = coding.trim_start_matches("raw ");
        assert_eq!(chat(Some(name), &coded(coding, BROTLI_OF)), plain, "{coding}");
        assert_eq!(chat(Some(&name.to_uppercase()), &coded(coding, BROTLI_OF)), plain, "{coding}");
    }
    let twice = coded("gzip", &coded("zstd", BROTLI_OF));
    assert_eq!(chat(Some("zstd, gzip"), &twice), plain);
    assert_eq!(chat(Some("identity"), BROTLI_OF), plain);
    // Two gzip members or two zstd frames that follow one another form one body.
    let (head, tail) = BROTLI_OF.split_at(20);
    for coding in ["gzip", "zstd"] {
        let pieces = [coded(coding, head), coded(coding, tail)].concat();
        assert_eq!(chat(Some(coding), &pieces), plain, "{coding}");
    }
}

#[test]
fn undecodable_body_yields_no_facts() {
    let nothing = read("/v1/chat/completions", &[], None);
    assert_eq!((nothing.model.as_deref(), nothing.prompt), (None, None));
    let whole = coded("gzip", BROTLI_OF);
    for (coding, body) in [
        ("gzip", BROTLI_OF),
        ("gzip", &whole[..whole.len() - 9]),
        ("zstd", &whole),
        ("br", &whole),
        ("deflate", &whole),
        ("compress", &whole),
        ("gzip, gzip, gzip, gzip", &whole),
        ("", b""),
    ] {
        assert_eq!(chat(Some(coding), body), nothing, "{coding}");
    }
}

#[test]
fn decompression_bombs_are_rejected() {
    let text = of_length(64 << 20);
    let steep = coded("gzip", text.as_bytes());
    assert!(steep.len() < 100_000, "steep enough");
    let longer = of_length(MAX_DECOMPRESSED + 1_000);
    let (head, tail) = longer.as_bytes().split_at(MAX_DECOMPRESSED - 1_000);
    for (coding, body) in [
        ("gzip, gzip", coded("gzip", &steep)),
        ("gzip", steep),
        ("zstd", coded("zstd", text.as_bytes())),
        // Each frame alone is within the limit, but both together are not.
        ("zstd", [coded("zstd", head), coded("zstd", tail)].concat()),
        ("br", unhex(BROTLI_BOMB.trim())),
        // A frame of nine bytes that requires a window of a gigabyte.
        ("zstd", vec![0x28, 0xB5, 0x2F, 0xFD, 0x00, 0xA0, 0x01, 0x00, 0x00]),
    ] {
        let facts = chat(Some(coding), &body);
        assert_eq!((facts.model, facts.prompt), (None, None), "{coding}");
    }
}

/// Returns a request body of `length` bytes.
fn of_length(length: usize) -> String {
    let frame = r#"{"model":"m","prompt":""}"#;
    frame.replace("\"\"", &format!("\"{}\"", "a".repeat(length - frame.len())))
}

#[test]
fn decompression_is_limited_to_one_mebibyte() {
    let nothing = read("/v1/chat/completions", &[], None);
    for coding in ["gzip", "deflate", "raw deflate", "zstd"] {
        let name = coding.trim_start_matches("raw ");
        let (most, more) = (of_length(MAX_DECOMPRESSED), of_length(MAX_DECOMPRESSED + 1));
        assert_eq!(
            chat(Some(name), &coded(coding, most.as_bytes())),
            chat(None, most.as_bytes()),
            "{coding}"
        );
        assert_eq!(chat(Some(name), &coded(coding, more.as_bytes())), nothing, "{coding}");
    }
    // A body that is not compressed is read at any length, and so is the model in a path.
    let more = of_length(2 * MAX_DECOMPRESSED);
    assert_eq!(chat(Some("identity"), more.as_bytes()).model.as_deref(), Some("m"));
    let body = coded("gzip", more.as_bytes());
    let azure = "/openai/deployments/d/chat/completions";
    let facts = read(azure, &[("content-encoding", "gzip")], Some(&body));
    assert_eq!((facts.model.as_deref(), facts.prompt), (Some("d"), None));
    // A compressed body above the limit is not decompressed at all: for a sequence of empty gzip
    // members, the limit of the output would never be reached.
    let empty = coded("gzip", b"").repeat(MAX_DECOMPRESSED / 20);
    let body = [&empty[..], &coded("gzip", BROTLI_OF)].concat();
    assert!(body.len() > MAX_DECOMPRESSED);
    assert_eq!(chat(Some("gzip"), &body), nothing);
}

#[test]
fn conversation_bypasses_admission_only_if_its_body_is_known() {
    let purpose = |body| read("/v1/conversations", &[], body).purpose;
    assert_eq!(purpose(Some(&b"{}"[..])), Purpose::Other);
    assert_eq!(purpose(Some(br#"{"inputs": "hi"}"#)), Purpose::Inference);
    assert_eq!(purpose(None), Purpose::Inference);
}

const FORM: &str = "multipart/form-data; boundary=\"xyz\"";

fn form(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (head, value) in parts {
        body.extend(format!("--xyz\r\n{head}\r\n\r\n").bytes());
        body.extend(*value);
        body.extend(b"\r\n");
    }
    body.extend(b"--xyz--\r\n");
    body
}

const FILE: &str =
    "Content-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav";
const MODEL: &str = "content-disposition: form-data; name=\"model\"";

#[test]
fn form_files_count_by_size() {
    let sound = vec![7; 320_000];
    let body = form(&[
        (FILE, &sound),
        (MODEL, b"whisper-1"),
        ("Content-Disposition: form-data; name=\"stream\"", b"true"),
    ]);
    let facts = read("/v1/audio/transcriptions", &[("content-type", FORM)], Some(&body));
    assert_eq!(
        (facts.model.as_deref(), facts.stream, facts.task),
        (Some("whisper-1"), true, Task::Transcribe)
    );
    let prompt = facts.prompt.expect("a form");
    // The file is ten seconds of audio.
    assert_eq!((prompt.media, prompt.media_tokens, prompt.text_bytes), (1, 320, 0));

    let image =
        "Content-Disposition: form-data; name=\"image[]\"; filename=\"a.png\"\r\nContent-Type: image/png";
    let body = form(&[
        ("Content-Disposition: form-data; name=\"prompt\"", b"a red hat"),
        (image, &sound),
        (image, b"x"),
        ("Content-Disposition: form-data; name=\"n\"", b"2"),
    ]);
    let facts = read("/v1/images/edits", &[("content-type", FORM)], Some(&body));
    let prompt = facts.prompt.expect("a form");
    assert_eq!((prompt.media_tokens, prompt.text_bytes, prompt.answers), (3_200, 9, Some(2)));
}

#[test]
fn streamed_upload_counts_by_content_length() {
    let headers = [("content-type", FORM), ("content-length", "1600000")];
    let prompt = read("/v1/audio/transcriptions", &headers, None).prompt.expect("a length");
    assert_eq!((prompt.media, prompt.media_tokens), (1, 3_200));
    assert_eq!(read("/v1/audio/transcriptions", &headers[..1], None).prompt, None);
}

#[test]
fn malformed_forms_yield_no_facts() {
    for (kind, body) in [
        ("multipart/form-data", &b"--xyz\r\n"[..]),
        ("multipart/form-data; boundary=", b"--\r\n"),
        (FORM, b""),
        (FORM, b"--xyz"),
        (FORM, b"--xyz\r\nno head"),
        (FORM, b"--xyz--\r\n"),
    ] {
        let facts = read("/v1/audio/transcriptions", &[("content-type", kind)], Some(body));
        assert_eq!((facts.model, facts.stream), (None, false), "{kind}");
    }
    // A form that is cut off within its file counts up to that point, and its model is known.
    let whole = form(&[(MODEL, b"m"), (FILE, &[7; 64_000])]);
    let facts = read("/v1/audio/transcriptions", &[("content-type", FORM)], Some(&whole[..40_000]));
    assert_eq!((facts.model.as_deref(), facts.prompt.expect("a form").media_tokens), (Some("m"), 64));
}

proptest! {
    #[test]
    fn any_text_compressed_is_the_same_request(text: String, max in any::<u32>(), stream: bool) {
        let messages = serde_json::json!([{"role": "user", "content": text}]);
        let body = serde_json::json!({"model": "m", "stream": stream, "max_tokens": max, "messages": messages});
        let body = body.to_string().into_bytes();
        for coding in ["gzip", "deflate", "zstd"] {
            prop_assert_eq!(chat(Some(coding), &coded(coding, &body)), chat(None, &body));
        }
    }

    #[test]
    fn any_encoded_body_is_read_without_panic(
        body in prop::collection::vec(any::<u8>(), 0..300),
        coding in prop::sample::select(&["gzip", "deflate", "zstd", "br", "zstd, br"][..]),
        flip in any::<prop::sample::Index>(),
    ) {
        chat(Some(coding), &body);
        // A valid compressed body in which one byte was changed.
        if coding == "gzip" || coding == "zstd" {
            let mut nearly = coded(coding, BROTLI_OF);
            let at = flip.index(nearly.len());
            nearly[at] = nearly[at].wrapping_add(body.len() as u8);
            chat(Some(coding), &nearly);
        }
    }

    #[test]
    fn no_form_panics(body in "(--xyz(--)?|\r\n|Content-Disposition: |form-data; |name=\"model\"|filename=|:|;|[a-z]|\\PC){0,60}") {
        read("/v1/images/edits", &[("content-type", FORM)], Some(body.as_bytes()));
    }
}
