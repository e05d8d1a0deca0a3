//! Media in prompts: images, audio, video and files.

/// A part of a prompt that is no text, and what it costs.
///
/// Providers count pixels, seconds and pages, none of which stand in the request. So:
///
/// | part | tokens |
/// |---|---|
/// | image | 1,600, the most that Anthropic charges for one (OpenAI: 765 for a square one, at most 1,445); with `detail: low` 85 |
/// | sound | 32 a second (Gemini; OpenAI counts 10), at 16 kB a second, or, of WAV, 32 kB |
/// | video | 263 a second (Gemini), at 125 kB a second |
/// | file | 2,000 a page, at 50 kB a page |
///
/// A sound or video given by reference counts as a minute, a file as a page; anything counts as one second or page at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    /// A picture.
    Image,
    /// Speech or music.
    Sound,
    /// A film.
    Video,
    /// A document with pages, a PDF mostly.
    File,
}

/// Seconds assumed for media given by reference.
const MINUTE: u64 = 60;

impl Media {
    /// Returns the tokens of the media. `bytes` is the decoded size, or `None` if it is given by
    /// reference.
    pub(super) fn tokens(self, bytes: Option<u64>, form: Form) -> u64 {
        let units = |unit: u64, else_: u64| bytes.map_or(else_, |bytes| bytes.div_ceil(unit).max(1));
        match self {
            Media::Image if form.low => 85,
            Media::Image => 1_600,
            Media::Sound => 32 * units(if form.wav { 32_000 } else { 16_000 }, MINUTE),
            Media::Video => 263 * units(125_000, MINUTE),
            Media::File => 2_000 * units(50_000, 1),
        }
    }
}

/// Properties stated beside a part.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Form {
    /// Uncompressed audio.
    pub(super) wav: bool,
    /// An image of low detail.
    pub(super) low: bool,
}

/// What kind of part this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Media, counted by its own rule.
    Media(Media),
    /// Text, although it is given as data.
    Text,
    /// Data that only the provider reads.
    Opaque,
}

impl Kind {
    /// Returns the kind of a MIME type (`image/png`) or format (`wav`).
    pub(super) fn of_format(format: &str) -> Option<Self> {
        let class = format.split_once('/').map_or(format, |(class, _)| class);
        Some(match class {
            "image" | "png" | "jpeg" | "jpg" | "gif" | "webp" => Kind::Media(Media::Image),
            "audio" | "wav" | "mp3" | "pcm16" | "flac" | "opus" | "ogg" | "aac" => Kind::Media(Media::Sound),
            "video" | "mp4" | "mov" | "webm" | "mkv" => Kind::Media(Media::Video),
            "application" | "pdf" | "doc" | "docx" | "xls" | "xlsx" => Kind::Media(Media::File),
            "text" | "txt" | "md" | "csv" | "html" => Kind::Text,
            _ => return None,
        })
    }

    /// Returns the kind of a part's `type` (`input_image`, `document`).
    pub(super) fn of_type(name: &str) -> Option<Self> {
        let named = |words: &[&str]| words.iter().any(|word| name.contains(word));
        if named(&["image", "screenshot"]) {
            Some(Kind::Media(Media::Image))
        } else if named(&["audio"]) {
            Some(Kind::Media(Media::Sound))
        } else if named(&["video"]) {
            Some(Kind::Media(Media::Video))
        } else if named(&["file", "document"]) {
            Some(Kind::Media(Media::File))
        } else if named(&["redacted", "encrypted"]) {
            Some(Kind::Opaque)
        } else {
            None
        }
    }
}
