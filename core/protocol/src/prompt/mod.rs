//! Counts what a request makes the model read and produce, without a tokenizer.
//!
//! [`Prompt`] is filled in the same pass over the body that finds the model's name. How a JSON
//! value counts depends on the [`Role`] of its key, on the kind of [`Media`], and on the [`Task`]
//! of the endpoint.

mod count_json;
mod endpoint_task;
mod json_role;
mod media;
mod media_part;
#[cfg(test)]
mod tests;

pub use endpoint_task::Task;
pub use json_role::Role;
use media::Form;
pub use media::Media;
use media_part::Data;

/// Tokens added to the input for each message of a conversation, for its role and delimiters.
///
/// OpenAI documents three tokens, and one more for a name.
pub const MESSAGE_TOKENS: u64 = 4;

/// Everything in a request that costs tokens, counted from its body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// Length of all text in bytes of UTF-8, including JSON that the model reads as text, such as
    /// tool definitions.
    pub text_bytes: u64,
    /// Number of messages in the conversation. 0 for a plain text prompt.
    pub messages: u64,
    /// Number of input tokens that are given as token ids instead of text.
    pub token_ids: u64,
    /// Number of images, audio clips, videos and files.
    pub media: u64,
    /// Estimated input tokens of all media, by the rules of [`Media`].
    pub media_tokens: u64,
    /// Maximum output tokens of one answer, or `None` if the request sets no maximum.
    pub max_tokens: Option<u64>,
    /// Number of answers requested for each text or conversation, or `None` if the request does not
    /// state it, which means one answer.
    pub answers: Option<u64>,
    /// Number of texts or conversations in a list of those to complete. 0 if the request contains
    /// no such list.
    pub completions: u64,
    /// Maximum thinking tokens, or `None` if the request does not limit them. An effort level such
    /// as `high` is converted to tokens as in Google's documentation of Gemini.
    pub thinking: Option<u64>,
    /// Whether the request refers to content stored at the provider, such as a previous response,
    /// or contains results of a web search, which are encrypted. The model then reads more input
    /// than is counted.
    pub has_stored_context: bool,
}

impl Prompt {
    /// Returns the estimated input tokens: text at `ratio` tokens per byte, message framing, token
    /// ids and media.
    pub fn input(&self, ratio: f64) -> u64 {
        // The cast saturates and turns NaN into zero.
        let text = (self.text_bytes as f64 * ratio).ceil() as u64;
        text.saturating_add(self.messages.saturating_mul(MESSAGE_TOKENS))
            .saturating_add(self.token_ids)
            .saturating_add(self.media_tokens)
    }

    /// Returns the number of answers to the request, at least 1.
    pub fn all_answers(&self) -> u64 {
        self.answers.unwrap_or(1).max(1).saturating_mul(self.completions.max(1))
    }

    /// Returns the maximum output tokens of all answers together, or `None` if the request sets no
    /// maximum.
    pub fn max_output(&self) -> Option<u64> {
        Some(self.max_tokens?.saturating_mul(self.all_answers()))
    }

    /// Returns `true` if nothing was counted that the model reads, for example because the server
    /// has an API of its own.
    pub fn is_empty(&self) -> bool {
        let Self { text_bytes, messages, token_ids, media, .. } = *self;
        [text_bytes, messages, token_ids, media] == [0; 4] && !self.has_stored_context
    }

    /// Adds a file of a multipart form. `format` is the MIME type of the file, if stated, and
    /// `bytes` its size.
    ///
    /// The file counts as audio for transcriptions and as an image for image endpoints. For other
    /// tasks the MIME type decides, and a file of unknown type counts as a document.
    pub(crate) fn add_file(&mut self, task: Task, format: Option<&str>, bytes: u64) {
        let media = match task {
            Task::Transcribe => Media::Sound,
            Task::Image => Media::Image,
            _ => format.and_then(Media::of_format).unwrap_or(Media::File),
        };
        let form = Form { wav: format.is_some_and(|format| format.contains("wav")), low: false };
        self.add_part(media, Data { text: bytes, bytes: Some(bytes) }, form);
    }

    /// Adds a text field of a multipart form, such as `prompt` or `n`. Fields that cost no tokens
    /// are ignored.
    pub(crate) fn add_field(&mut self, name: &str, text: &str) {
        match Role::of_field(name) {
            Some(Role::Prompt | Role::Completions) => self.add_text(text.len() as u64),
            Some(role @ (Role::Answers | Role::MaxTokens)) => self.raise(role, text.parse().ok()),
            _ => {}
        }
    }

    /// Adds media by its token estimate, or the data as text if it is text. Opaque data costs
    /// nothing.
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

    /// Raises the limit that `role` stands for (maximum output tokens, answers or thinking tokens)
    /// to `value`, unless it is already larger. `None` changes nothing.
    fn raise(&mut self, role: Role, value: Option<u64>) {
        let limit = match role {
            Role::MaxTokens => &mut self.max_tokens,
            Role::Answers => &mut self.answers,
            _ => &mut self.thinking,
        };
        *limit = value.max(*limit);
    }
}
