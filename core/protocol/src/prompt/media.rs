//! Media in prompts, and their estimated cost in tokens.

/// The kind of a part of a prompt, which decides its estimated input tokens.
///
/// Providers charge by pixels, seconds and pages, which requests do not state. The estimates are
/// therefore based on the size of the data:
///
/// | part | tokens |
/// |---|---|
/// | image | 1,600, the most that Anthropic charges for one image (OpenAI: 765 for a square image, at most 1,445); 85 with `detail: low` |
/// | audio | 32 per second (Gemini; OpenAI charges 10), at 16 kB per second, or 32 kB per second for WAV |
/// | video | 263 per second (Gemini), at 125 kB per second |
/// | document | 2,000 per page, at 50 kB per page and at most 100 pages (larger files are scans) |
///
/// Audio or video given by reference counts as one minute, and a referenced document as one page.
/// The minimum is one second or one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    /// An image.
    Image,
    /// Audio: speech or music.
    Sound,
    /// A video.
    Video,
    /// A document with pages, usually a PDF.
    File,
    /// Text that is given as data. It is counted by its length.
    Text,
    /// Data that the model does not read, such as encrypted reasoning. It costs nothing.
    Opaque,
}

/// Duration, in seconds, assumed for audio and video given by reference.
const MINUTE: u64 = 60;

/// The most pages of a document that are assumed: what Anthropic admits in one request.
const MAX_PAGES: u64 = 100;

impl Media {
    /// Returns the estimated tokens. `bytes` is the decoded size, or `None` if the data is only
    /// referenced.
    ///
    /// Returns `None` for [`Media::Text`] and [`Media::Opaque`], which are not counted as media.
    pub(super) fn tokens(self, bytes: Option<u64>, form: Form) -> Option<u64> {
        let units = |unit: u64, unknown: u64| bytes.map_or(unknown, |bytes| bytes.div_ceil(unit).max(1));
        Some(match self {
            Media::Image if form.low => 85,
            Media::Image => 1_600,
            Media::Sound => 32 * units(if form.wav { 32_000 } else { 16_000 }, MINUTE),
            Media::Video => 263 * units(125_000, MINUTE),
            Media::File => 2_000 * units(50_000, 1).min(MAX_PAGES),
            Media::Text | Media::Opaque => return None,
        })
    }

    /// Returns the media of a MIME type (`image/png`) or a format (`wav`), or `None` if it is
    /// unknown.
    pub(super) fn of_format(format: &str) -> Option<Self> {
        let class = format.split_once('/').map_or(format, |(class, _)| class);
        Some(match class {
            "image" | "png" | "jpeg" | "jpg" | "gif" | "webp" => Media::Image,
            "audio" | "wav" | "mp3" | "pcm16" | "flac" | "opus" | "ogg" | "aac" => Media::Sound,
            "video" | "mp4" | "mov" | "webm" | "mkv" => Media::Video,
            "application" | "pdf" | "doc" | "docx" | "xls" | "xlsx" => Media::File,
            "text" | "txt" | "md" | "csv" | "html" => Media::Text,
            _ => return None,
        })
    }

    /// Returns the media that the `type` of a part names (`input_image`, `document`), or `None` if
    /// it names none.
    pub(super) fn of_type(name: &str) -> Option<Self> {
        const WORDS: [(Media, &[&str]); 5] = [
            (Media::Image, &["image", "screenshot"]),
            (Media::Sound, &["audio"]),
            (Media::Video, &["video"]),
            (Media::File, &["file", "document"]),
            (Media::Opaque, &["redacted", "encrypted"]),
        ];
        let names = |words: &[&str]| words.iter().any(|word| name.contains(word));
        WORDS.iter().find(|(_, words)| names(words)).map(|(media, _)| *media)
    }
}

/// Properties of the data of a media part that change its estimated tokens.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Form {
    /// Whether the audio is uncompressed.
    pub(super) wav: bool,
    /// Whether the model reads the image at low detail.
    pub(super) low: bool,
}
