//! How many tokens a request costs, before anybody has counted them.
//!
//! A count by tokenizer takes 5 to 9 ms for a prompt of 100 KB, and is right for one family of models only. So the text is measured in
//! UTF-8 bytes, in the same pass over the body that finds the model's name, and a ratio makes tokens of them.
//!
//! # The ratio
//!
//! [`COLD_RATIO`] is what a target starts with. Against OpenAI's `o200k` it is above the truth for prose in English (by 30 %), German
//! (31 %) and Chinese (14 to 26 %) and for code (30 to 37 %), so that a budget is not overrun by calls of which nothing is known yet; close
//! to it for Markdown and the JSON of APIs (6 and 1 %); and below it for tables of figures (24 %) and JSON full of UUIDs (46 %).
//!
//! An [`Estimator`] learns the ratio of each model, and how long its answers are, from what its provider counts. Where a target asks for it, prompts
//! are counted exactly instead ([`crate::count`]).
//!
//! # What is counted
//!
//! - Text by its bytes once unescaped: prompts, messages, system instructions, documents; and each message with [`MESSAGE`] tokens for what
//!   separates it from the next.
//! - Tools, schemas and the arguments of tool calls as compact JSON, which is what the model reads.
//! - Input that comes as token ids: one each.
//! - Images, sound, video and files by rules of their own (see [`Media`]), never as the text of their base64.
//! - Not what only the provider reads: roles, ids, types, signatures, encrypted reasoning.
//!
//! # Nonsense
//!
//! A field of an unexpected shape counts as the text that is in it, or as nothing. Sums saturate. A body that is not JSON, or nested deeper
//! than 128 levels, has no estimate, and neither has a compressed one of more than 1 MiB, which would take too long to decode; finding that out costs no more than reading it twice.
//!
//! Longer text never lowers an estimate.

mod average;
mod demand;
mod estimator;
#[cfg(feature = "bpe")]
pub(crate) mod exact;
mod key;
mod lengths;
mod line;
mod media;
mod output;
mod piece;
mod recent;
mod task;
#[cfg(test)]
mod tests;
mod walk;

pub use demand::Demand;
pub use estimator::Estimator;
pub(crate) use key::Role;
pub use lengths::LengthSample;
pub use media::Media;
pub use output::Output;
pub use task::Task;

/// Tokens for each UTF-8 byte of text, where nothing is known of a target yet.
pub const COLD_RATIO: f64 = 0.3;

/// Tokens that frame one message of a conversation: OpenAI's documentation gives three and one for a name.
pub const MESSAGE: u64 = 4;

/// Output of one answer, in tokens, where a call does not bound it and nothing is known of its model: well above what chat answers take in the mean
/// (200 to 500).
pub const COLD_OUTPUT: u64 = 1_024;

/// Input, in tokens, of a call that nobody sees (slots held by name, bodies that cannot be read), until something is known of its model.
pub const UNSEEN_INPUT: u64 = 1_024;

/// What in a request costs tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// UTF-8 bytes of text, and of JSON that the model reads as text.
    pub text_bytes: u64,
    /// Messages of a conversation.
    pub messages: u64,
    /// Input that came as token ids.
    pub token_ids: u64,
    /// Images, sounds, videos and files.
    pub media: u64,
    /// What these cost.
    pub media_tokens: u64,
    /// The most output tokens of one answer, where the request bounds it.
    pub max_tokens: Option<u64>,
    /// How many answers it asks for, where it says.
    pub answers: Option<u64>,
    /// How many tokens it may think, where it says; of words (`high`) by what Google's documentation makes of them.
    pub thinking: Option<u64>,
    /// Whether it goes on from something that the provider keeps, and so more is read than stands in it.
    pub kept: bool,
}

impl Prompt {
    /// Estimated input tokens, at so many tokens for each byte of text.
    pub fn input(&self, ratio: f64) -> u64 {
        // The cast saturates, and makes nothing of a ratio that is no number.
        let text = (self.text_bytes as f64 * ratio).ceil() as u64;
        text.saturating_add(self.messages.saturating_mul(MESSAGE))
            .saturating_add(self.token_ids)
            .saturating_add(self.media_tokens)
    }

    /// The most output tokens of all answers together, where the request bounds them.
    pub fn max_output(&self) -> Option<u64> {
        Some(self.max_tokens?.saturating_mul(self.answers.unwrap_or(1).max(1)))
    }

    /// A file of a form: sound where sound is asked for, else by its MIME type.
    pub(crate) fn file(&mut self, task: Task, format: Option<&str>, bytes: u64) {
        let form = media::Form { wav: format.is_some_and(|format| format.contains("wav")), low: false };
        let kind = match task {
            Task::Transcribe => Some(media::Kind::Media(Media::Sound)),
            Task::Image => Some(media::Kind::Media(Media::Image)),
            _ => format.and_then(media::Kind::of_format),
        };
        match kind {
            Some(media::Kind::Media(media)) => self.add(media.tokens(Some(bytes), form)),
            Some(media::Kind::Text) => self.text(bytes),
            Some(media::Kind::Opaque) => {}
            None => self.add(Media::File.tokens(Some(bytes), form)),
        }
    }

    /// A field of a form.
    pub(crate) fn field(&mut self, name: &str, text: &str) {
        match Role::of_field(name) {
            Some(Role::Prompt) => self.text(text.len() as u64),
            Some(Role::Answers) => self.answers = self.answers.max(text.parse().ok()),
            Some(Role::MaxTokens) => self.max_tokens = self.max_tokens.max(text.parse().ok()),
            _ => {}
        }
    }

    fn text(&mut self, bytes: u64) {
        self.text_bytes = self.text_bytes.saturating_add(bytes);
    }

    fn message(&mut self) {
        self.messages = self.messages.saturating_add(1);
    }

    fn token_id(&mut self) {
        self.token_ids = self.token_ids.saturating_add(1);
    }

    fn add(&mut self, tokens: u64) {
        self.media = self.media.saturating_add(1);
        self.media_tokens = self.media_tokens.saturating_add(tokens);
    }
}
