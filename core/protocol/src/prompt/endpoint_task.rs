//! The kind of work that an endpoint performs, and the tokens assumed for it before any answer has
//! been observed.

/// The kind of work that an endpoint performs, which decides how the tokens of a call are
/// estimated.
///
/// | task | input | output, until answers have been observed |
/// |---|---|---|
/// | text | text and media | `max_tokens`; if absent, the estimator's default (1,024) plus the thinking limit |
/// | embeddings, ranking, classification, moderation | text | none |
/// | images | text, and 1,600 for each input image | 4,160 per image (OpenAI: a square image of high quality; 272 at low quality) |
/// | video | text | 2,104: eight seconds at 263 |
/// | speech | text | 3 tokens per 2 bytes of text: 21 per second (OpenAI) at 14 bytes per second; not adjusted by observations |
/// | transcription | 32 per second of audio, see [`Media`](super::Media) | one eighth of the input: 4 per second; not adjusted by observations |
/// | other | text, or 1,024 or the model's mean if the body is unavailable | as for text |
///
/// The files of a multipart form count by their size. A form that is still being uploaded counts by
/// its `content-length`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Task {
    /// Text generation: chat, completions, responses, messages.
    Text,
    /// Computation of embeddings.
    Embed,
    /// Ranking or scoring of documents.
    Rank,
    /// Classification, moderation or pooling.
    Classify,
    /// Generation or editing of images.
    Image,
    /// Generation of video.
    Video,
    /// Text to speech.
    Speech,
    /// Transcription or translation of speech.
    Transcribe,
    /// A task that the request does not show.
    #[default]
    Other,
}

impl Task {
    /// Returns the task that a model's name implies, for endpoints that serve several tasks.
    /// Returns [`Task::Other`] if the name implies none.
    pub(crate) fn from_model(model: &str) -> Self {
        const WORDS: [(Task, &[&str]); 4] = [
            (Task::Embed, &["embed"]),
            (Task::Rank, &["rerank"]),
            (Task::Image, &["imagen", "imagegeneration", "stable-diffusion", "image-generator", "canvas"]),
            (Task::Video, &["veo", "nova-reel"]),
        ];
        let names = |words: &[&str]| words.iter().any(|word| model.contains(word));
        WORDS.iter().find(|(_, words)| names(words)).map_or(Task::Other, |(task, _)| *task)
    }
}
