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
    /// Text, although it is given as data.
    Text,
    /// Data that only the provider reads.
    Opaque,
}

/// Seconds assumed for media given by reference.
const MINUTE: u64 = 60;

impl Media {
    /// Returns the tokens of the media. `bytes` is the decoded size, or `None` if it is given by
    /// reference. Returns `None` for text and for data that costs nothing.
    pub(super) fn tokens(self, bytes: Option<u64>, form: Form) -> Option<u64> {
        let units = |unit: u64, unknown: u64| bytes.map_or(unknown, |bytes| bytes.div_ceil(unit).max(1));
        Some(match self {
            Media::Image if form.low => 85,
            Media::Image => 1_600,
            Media::Sound => 32 * units(if form.wav { 32_000 } else { 16_000 }, MINUTE),
            Media::Video => 263 * units(125_000, MINUTE),
            Media::File => 2_000 * units(50_000, 1),
            Media::Text | Media::Opaque => return None,
        })
    }

    /// Returns the media of a MIME type (`image/png`) or format (`wav`).
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

    /// Returns the media of a part's `type` (`input_image`, `document`).
    pub(super) fn of_type(name: &str) -> Option<Self> {
        const WORDS: [(&str, Media); 8] = [
            ("image", Media::Image),
            ("screenshot", Media::Image),
            ("audio", Media::Sound),
            ("video", Media::Video),
            ("file", Media::File),
            ("document", Media::File),
            ("redacted", Media::Opaque),
            ("encrypted", Media::Opaque),
        ];
        WORDS.iter().find(|(word, _)| name.contains(word)).map(|(_, media)| *media)
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
