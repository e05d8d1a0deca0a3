//! What kind of work an endpoint does, and what it takes where nothing is learned of it yet.

/// What kind of work a call asks for: each has its own rule for what it takes.
///
/// | task | input | output, until it is learned |
/// |---|---|---|
/// | text | its text and parts | `max_tokens`; where absent the estimator's cold value (1,024) and the budget for thinking |
/// | embeddings, ranking, classification, moderation | its text | none |
/// | images | its text, and 1,600 for each image sent along | 4,160 an image (OpenAI: a square one of high quality; of low 272) |
/// | video | its text | 2,104: eight seconds at 263 |
/// | speech | its text | 3 tokens for 2 bytes of text, 21 a second (OpenAI) at 14 bytes a second; never learned |
/// | transcription | 32 a second of the sound sent along, as [`Media`](super::Media) | an eighth of that, 4 a second; never learned |
/// | anything else, and a call of which nothing is seen | its text; where nothing is seen 1,024, or the mean of its model | as text |
///
/// A form (`multipart/form-data`) counts its files by their size, or, of an upload that is still under way, by its `content-length`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Task {
    /// Text answers: chat, completions, responses, messages.
    Text,
    /// Embeddings.
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
    /// An unknown task.
    #[default]
    Other,
}

impl Task {
    /// Returns the task that a model's name implies, for endpoints that serve several tasks.
    pub fn from_model(model: &str) -> Self {
        const WORDS: [(&str, Task); 9] = [
            ("embed", Task::Embed),
            ("rerank", Task::Rank),
            ("imagen", Task::Image),
            ("imagegeneration", Task::Image),
            ("stable-diffusion", Task::Image),
            ("image-generator", Task::Image),
            ("canvas", Task::Image),
            ("veo", Task::Video),
            ("nova-reel", Task::Video),
        ];
        WORDS.iter().find(|(word, _)| model.contains(word)).map_or(Task::Other, |(_, task)| *task)
    }
}
