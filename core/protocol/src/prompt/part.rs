//! A part of a prompt that may be media, gathered while its object is parsed, because keys come in
//! any order.

use super::Prompt;
use super::media::{Form, Kind};

/// What is known of a part, gathered from an object and the objects in it until its kind is known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Piece {
    /// Kinds from the most to the least trustworthy source: the data's own prefix, its MIME type,
    /// its type, its key.
    prefix: Option<Kind>,
    format: Option<Kind>,
    typed: Option<Kind>,
    key: Option<Kind>,
    form: Form,
    data: Option<Data>,
}

#[derive(Clone, Copy, Debug)]
struct Data {
    /// Bytes of the part if it is text.
    text: u64,
    /// Decoded size, or `None` for a reference.
    bytes: Option<u64>,
}

impl Piece {
    pub(super) fn typed(name: &str) -> Self {
        Self { typed: Kind::of_type(name), ..Self::default() }
    }

    pub(super) fn formatted(format: &str) -> Self {
        let wav = format.contains("wav") || format.contains("pcm");
        Self { format: Kind::of_format(format), form: Form { wav, low: false }, ..Self::default() }
    }

    pub(super) fn detailed(detail: &str) -> Self {
        Self { form: Form { low: detail == "low", wav: false }, ..Self::default() }
    }

    /// Creates a part from base64 data, unless the data states another encoding.
    pub(super) fn data(text: &str, key: Option<Kind>) -> Self {
        if ["data:", "https://", "http://"].iter().any(|scheme| text.starts_with(scheme)) {
            return Self::reference(text, key);
        }
        let len = text.len() as u64;
        Self { key, data: Some(Data { text: len, bytes: Some(decoded(len)) }), ..Self::default() }
    }

    /// Creates a part from a URL, which may contain the data itself.
    pub(super) fn reference(text: &str, key: Option<Kind>) -> Self {
        let len = text.len() as u64;
        let Some(rest) = text.strip_prefix("data:") else {
            return Self { key, data: Some(Data { text: len, bytes: None }), ..Self::default() };
        };
        let (head, body) = rest.split_once(',').unwrap_or((rest, ""));
        let mime = head.split(';').next().unwrap_or_default();
        let data = Some(Data { text: len, bytes: Some(decoded(body.len() as u64)) });
        let form = Form { wav: mime.contains("wav"), low: false };
        Self { prefix: Kind::of_format(mime), key, form, data, ..Self::default() }
    }

    /// Adds what another part of the same object states.
    pub(super) fn join(&mut self, other: Self) {
        self.prefix = self.prefix.or(other.prefix);
        self.format = self.format.or(other.format);
        self.typed = self.typed.or(other.typed);
        self.key = self.key.or(other.key);
        self.form.wav |= other.form.wav;
        self.form.low |= other.form.low;
        self.data = match (self.data, other.data) {
            (Some(a), Some(b)) => Some(if a.text >= b.text { a } else { b }),
            (a, b) => a.or(b),
        };
    }

    pub(super) fn stands_under(&mut self, key: Option<Kind>) {
        self.key = self.key.or(key);
    }

    /// Counts the data if its kind is known. Otherwise returns the part for the enclosing object.
    pub(super) fn settle_if_known(self, prompt: &mut Prompt) -> Self {
        let kind = self.prefix.or(self.format).or(self.typed).or(self.key);
        match (self.data, kind) {
            (Some(data), Some(kind)) => {
                match kind {
                    Kind::Media(media) => prompt.add(media.tokens(data.bytes, self.form)),
                    Kind::Text => prompt.text(data.text),
                    Kind::Opaque => {}
                }
                Self::default()
            }
            // A part without data says nothing about the enclosing object.
            (None, _) => Self::default(),
            (Some(_), None) => self,
        }
    }

    /// Counts the part, as text if its kind is unknown.
    pub(super) fn settle(self, prompt: &mut Prompt) {
        if let Some(data) = self.settle_if_known(prompt).data {
            prompt.text(data.text);
        }
    }
}

fn decoded(base64: u64) -> u64 {
    base64 / 4 * 3
}
