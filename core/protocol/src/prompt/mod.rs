//! What a request asks the model to read and to produce, counted without a tokenizer.
//!
//! [`Prompt`] is filled in the same pass over the body that finds the model's name. The rule for a
//! value depends on the [`Role`] of its field, the kind of [`Media`], and the endpoint's [`Task`].

mod count;
mod media;
mod part;
mod role;
mod task;
#[cfg(test)]
mod tests;

use media::Form;
pub use media::Media;
use part::Data;
pub use role::Role;
pub use task::Task;

/// Tokens that frame one message of a conversation. OpenAI documents three, and one for a name.
pub const MESSAGE: u64 = 4;

/// The parts of a request that cost tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// UTF-8 bytes of text, and of JSON that the model reads as text.
    pub text_bytes: u64,
    /// Number of messages of a conversation.
    pub messages: u64,
    /// Input tokens given as token ids.
    pub token_ids: u64,
    /// Number of images, audio clips, videos and files.
    pub media: u64,
    /// Estimated tokens of these media.
    pub media_tokens: u64,
    /// Maximum output tokens of one answer, if the request limits it.
    pub max_tokens: Option<u64>,
    /// Number of answers requested, if stated.
    pub answers: Option<u64>,
    /// Maximum thinking tokens, if stated. Words (`high`) count as in Google's documentation.
    pub thinking: Option<u64>,
    /// Whether the request continues something that the provider stores, so that the model reads
    /// more than the request contains.
    pub kept: bool,
}

impl Prompt {
    /// Returns the estimated input tokens at `ratio` tokens per byte of text.
    pub fn input(&self, ratio: f64) -> u64 {
        // The cast saturates and turns NaN into zero.
        let text = (self.text_bytes as f64 * ratio).ceil() as u64;
        text.saturating_add(self.messages.saturating_mul(MESSAGE))
            .saturating_add(self.token_ids)
            .saturating_add(self.media_tokens)
    }

    /// Returns the maximum output tokens of all answers together, if the request limits them.
    pub fn max_output(&self) -> Option<u64> {
        Some(self.max_tokens?.saturating_mul(self.answers.unwrap_or(1).max(1)))
    }

    /// Adds a file of a form: audio if the task takes audio, otherwise by its MIME type.
    pub(crate) fn add_file(&mut self, task: Task, format: Option<&str>, bytes: u64) {
        let media = match task {
            Task::Transcribe => Media::Sound,
            Task::Image => Media::Image,
            _ => format.and_then(Media::of_format).unwrap_or(Media::File),
        };
        let form = Form { wav: format.is_some_and(|format| format.contains("wav")), low: false };
        self.add_part(media, Data { text: bytes, bytes: Some(bytes) }, form);
    }

    /// Adds a field of a form.
    pub(crate) fn add_field(&mut self, name: &str, text: &str) {
        match Role::of_field(name) {
            Some(Role::Prompt) => self.add_text(text.len() as u64),
            Some(role @ (Role::Answers | Role::MaxTokens)) => self.raise(role, text.parse().ok()),
            _ => {}
        }
    }

    fn add_part(&mut self, media: Media, data: Data, form: Form) {
        if let Some(tokens) = media.tokens(data.bytes, form) {
            self.media += 1;
            self.media_tokens = self.media_tokens.saturating_add(tokens);
        } else if media == Media::Text {
            self.add_text(data.text);
        }
    }

    fn add_text(&mut self, bytes: u64) {
        self.text_bytes = self.text_bytes.saturating_add(bytes);
    }

    /// Raises the limit of this role to `value`, if it is larger.
    fn raise(&mut self, role: Role, value: Option<u64>) {
        let limit = match role {
            Role::MaxTokens => &mut self.max_tokens,
            Role::Answers => &mut self.answers,
            _ => &mut self.thinking,
        };
        *limit = value.max(*limit);
    }
}
