//! Collects the properties of one media part of a prompt while its JSON object is parsed. The keys
//! may come in any order.

use super::Prompt;
use super::media::{Form, Media};

/// The properties of a media part that are known so far, from an object and the objects nested in
/// it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Piece {
    /// The kind of media, with the most trustworthy source that states it. `None` if nothing states
    /// it.
    media: Option<(Source, Media)>,
    form: Form,
    data: Option<Data>,
}

/// Where the media of a part was stated, from the most to the least trustworthy source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// The MIME type in the `data:` prefix of the data.
    Prefix,
    /// A MIME type or format beside the data.
    Format,
    /// The `type` of the part.
    Type,
    /// The key that holds the data, such as `image_url`.
    Key,
}

/// The size of the data of a part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data {
    /// Length of the value in bytes, which is counted if the part is text.
    pub(super) text: u64,
    /// Size in bytes after base64 decoding, or `None` if the data is only referenced by a URL or
    /// id.
    pub(super) bytes: Option<u64>,
}

impl Piece {
    /// Creates a part of which only the kind of media is known, as stated by `source`. If `media`
    /// is `None`, the part is empty.
    pub(super) fn stated(source: Source, media: Option<Media>) -> Self {
        Self { media: media.map(|media| (source, media)), ..Self::default() }
    }

    /// Creates a part from the kind of media that the key of its value implies, if any.
    pub(super) fn under_key(media: Option<Media>) -> Self {
        Self::stated(Source::Key, media)
    }

    /// Creates a part from its MIME type or format.
    pub(super) fn formatted(format: &str) -> Self {
        let wav = format.contains("wav") || format.contains("pcm");
        Self { form: Form { wav, low: false }, ..Self::stated(Source::Format, Media::of_format(format)) }
    }

    /// Creates a part from the value of `detail`, which affects the cost of images.
    pub(super) fn detailed(detail: &str) -> Self {
        Self { form: Form { low: detail == "low", wav: false }, ..Self::default() }
    }

    /// Creates a part from base64 data. `key` is the kind of media that the key of the data
    /// implies, if any. A `data:`, `http:` or `https:` URL is read as a
    /// [reference](Self::reference).
    pub(super) fn data(text: &str, key: Option<Media>) -> Self {
        if ["data:", "https://", "http://"].iter().any(|scheme| text.starts_with(scheme)) {
            return Self::reference(text, key);
        }
        let len = text.len() as u64;
        Self { data: Some(Data { text: len, bytes: Some(decoded(len)) }), ..Self::under_key(key) }
    }

    /// Creates a part from a URL or id. `key` is the kind of media that the key of the URL implies,
    /// if any. A `data:` URL contains the data itself; the data of any other URL is not available.
    pub(super) fn reference(text: &str, key: Option<Media>) -> Self {
        let len = text.len() as u64;
        let Some(rest) = text.strip_prefix("data:") else {
            // Gemini takes videos on YouTube as files without a MIME type.
            let is_video = key == Some(Media::File) && is_on_youtube(text);
            let key = if is_video { Some(Media::Video) } else { key };
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

    /// Merges the properties of another part of the same object. The kind of media is that of the
    /// most trustworthy source, and the data is the longer one of the two.
    pub(super) fn join(&mut self, other: Self) {
        let media = [self.media, other.media].into_iter().flatten();
        self.media = media.min_by_key(|(source, _)| *source);
        self.form.wav |= other.form.wav;
        self.form.low |= other.form.low;
        self.data = [other.data, self.data].into_iter().flatten().max_by_key(|data| data.text);
    }

    /// Counts the data if its media is known, and returns an empty part. Otherwise counts nothing
    /// and returns the part unchanged, so that the enclosing object can state the media.
    ///
    /// Properties without data are dropped.
    pub(super) fn settle_if_known(self, prompt: &mut Prompt) -> Self {
        match (self.data, self.media) {
            (Some(_), None) => return self,
            (Some(data), Some((_, media))) => prompt.add_part(media, data, self.form),
            // A part without data says nothing about the enclosing object.
            (None, _) => {}
        }
        Self::default()
    }

    /// Counts the part. Data of unknown media is counted as text.
    pub(super) fn settle(self, prompt: &mut Prompt) {
        if let Some(data) = self.settle_if_known(prompt).data {
            prompt.add_text(data.text);
        }
    }
}

/// Returns `true` if the host of a URL is that of YouTube.
fn is_on_youtube(url: &str) -> bool {
    let host = url.split('/').nth(2).unwrap_or_default();
    matches!(host.strip_prefix("www.").unwrap_or(host), "youtube.com" | "youtu.be")
}

/// Returns the approximate decoded size of `base64` characters, in bytes.
fn decoded(base64: u64) -> u64 {
    base64 / 4 * 3
}
