//! A part of a prompt that may be media, gathered while its object is parsed, because keys come in
//! any order.

use super::Prompt;
use super::media::{Form, Media};

/// What is known of a part, gathered from an object and the objects in it until its media is known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Piece {
    media: Option<(Source, Media)>,
    form: Form,
    data: Option<Data>,
}

/// What states the media of a part, the most trustworthy first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    /// The prefix of the data itself.
    Prefix,
    /// The MIME type or format beside the data.
    Format,
    Type,
    Key,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Data {
    /// Bytes of the part if it is text.
    pub(super) text: u64,
    /// Decoded size, or `None` for a reference.
    pub(super) bytes: Option<u64>,
}

impl Piece {
    fn stated(source: Source, media: Option<Media>) -> Self {
        Self { media: media.map(|media| (source, media)), ..Self::default() }
    }

    pub(super) fn typed(name: &str) -> Self {
        Self::stated(Source::Type, Media::of_type(name))
    }

    pub(super) fn under_key(media: Option<Media>) -> Self {
        Self::stated(Source::Key, media)
    }

    pub(super) fn formatted(format: &str) -> Self {
        let wav = format.contains("wav") || format.contains("pcm");
        Self { form: Form { wav, low: false }, ..Self::stated(Source::Format, Media::of_format(format)) }
    }

    pub(super) fn detailed(detail: &str) -> Self {
        Self { form: Form { low: detail == "low", wav: false }, ..Self::default() }
    }

    /// Creates a part from base64 data, unless the data states another encoding.
    pub(super) fn data(text: &str, key: Option<Media>) -> Self {
        if ["data:", "https://", "http://"].iter().any(|scheme| text.starts_with(scheme)) {
            return Self::reference(text, key);
        }
        let len = text.len() as u64;
        Self { data: Some(Data { text: len, bytes: Some(decoded(len)) }), ..Self::under_key(key) }
    }

    /// Creates a part from a URL, which may contain the data itself.
    pub(super) fn reference(text: &str, key: Option<Media>) -> Self {
        let len = text.len() as u64;
        let Some(rest) = text.strip_prefix("data:") else {
            return Self { data: Some(Data { text: len, bytes: None }), ..Self::under_key(key) };
        };
        let (head, body) = rest.split_once(',').unwrap_or((rest, ""));
        let mime = head.split(';').next().unwrap_or_default();
        let mut piece = Self::stated(Source::Prefix, Media::of_format(mime));
        piece.join(Self::under_key(key));
        piece.form.wav = mime.contains("wav");
        piece.data = Some(Data { text: len, bytes: Some(decoded(body.len() as u64)) });
        piece
    }

    /// Adds what another part of the same object states.
    pub(super) fn join(&mut self, other: Self) {
        let media = [self.media, other.media].into_iter().flatten();
        self.media = media.min_by_key(|(source, _)| *source);
        self.form.wav |= other.form.wav;
        self.form.low |= other.form.low;
        self.data = match (self.data, other.data) {
            (Some(a), Some(b)) => Some(if a.text >= b.text { a } else { b }),
            (a, b) => a.or(b),
        };
    }

    /// Counts the data if its media is known. Otherwise returns the part for the enclosing object.
    pub(super) fn settle_if_known(self, prompt: &mut Prompt) -> Self {
        match (self.data, self.media) {
            (Some(_), None) => return self,
            (Some(data), Some((_, media))) => prompt.add_part(media, data, self.form),
            // A part without data says nothing about the enclosing object.
            (None, _) => {}
        }
        Self::default()
    }

    /// Counts the part, as text if its media is unknown.
    pub(super) fn settle(self, prompt: &mut Prompt) {
        if let Some(data) = self.settle_if_known(prompt).data {
            prompt.add_text(data.text);
        }
    }
}

fn decoded(base64: u64) -> u64 {
    base64 / 4 * 3
}
