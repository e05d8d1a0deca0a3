//! The role of a JSON value in a request, derived from its key as each provider spells it.

use super::media::Media;

/// Returns the thinking tokens that an effort level such as `high` stands for, as in Google's
/// documentation of Gemini. Returns `None` for unknown words.
pub(super) fn effort(word: &str) -> Option<u64> {
    Some(match word.to_ascii_lowercase().as_str() {
        "none" => 0,
        "minimal" | "low" => 1_024,
        "medium" => 8_192,
        "high" | "xhigh" | "max" => 24_576,
        _ => return None,
    })
}

/// How a JSON value in a request counts toward its tokens. The key of the value and the object
/// around it determine the role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Input at the top of the request: a text, token ids, or a list of messages.
    Prompt,
    /// One text to complete, in the form of [`Role::Prompt`], or a list of such texts. Each of them
    /// gets answers of its own.
    Completions,
    /// An element of a [`Role::Completions`] list: a text, a list of token ids, or a token id of
    /// the only text.
    Completion,
    /// An element of a [`Role::Prompt`] list. Objects count as messages, and numbers as token ids.
    /// A list of messages is one of several conversations, each of which gets answers of its own.
    Message,
    /// A text, or a value that contains texts. Strings inside it are counted by their length.
    Text,
    /// An element of a list inside a message or text. Numbers count as token ids.
    Element,
    /// The `type` of a part, such as `input_image`.
    Type,
    /// The MIME type or format of a part, such as `image/png` or `wav`.
    Format,
    /// The level of detail at which the model reads an image.
    Detail,
    /// Base64 data, or an object around it. Contains the kind of media that the key implies, which
    /// applies if nothing else states a kind, or `None` if the key implies none.
    Data(Option<Media>),
    /// A URL or id of data, or an object around it. The media has the same meaning as in
    /// [`Role::Data`].
    Reference(Option<Media>),
    /// A value that the model reads as JSON text, such as a tool definition.
    Json,
    /// An object that may contain limits, such as `generationConfig`.
    Settings,
    /// An object with settings of thinking. A maximum of tokens in it limits the thinking.
    ThinkingSettings,
    /// The maximum number of output tokens per answer.
    MaxTokens,
    /// The number of answers requested.
    Answers,
    /// The thinking limit: a number of tokens or an effort level.
    Thinking,
    /// The name of content stored at the provider, which the model reads before this request.
    StoredContext,
    /// A value that the model does not read. It costs no tokens.
    Ignored,
}

impl Role {
    /// Returns the role of a top-level key of the request, or `None` if its value costs no tokens.
    pub fn of_field(key: &str) -> Option<Self> {
        Some(match key {
            "prompt" => Role::Completions,
            "messages" | "system" | "input" | "instructions" | "suffix" | "contents" | "content"
            | "systemInstruction" | "system_instruction" | "requests" | "instances" | "message"
            | "chat_history" | "preamble" | "documents" | "query" | "texts" | "inputs" | "inputText"
            | "text_1" | "text_2" | "queries" | "items" | "data_1" | "data_2" => Role::Prompt,
            "images" => Role::Data(Some(Media::Image)),
            "tools" | "functions" => Role::Json,
            "generationConfig" | "generation_config" | "inferenceConfig" | "toolConfig" | "options"
            | "parameters" | "response_format" | "text" | "output_config" | "output_format" => Role::Settings,
            "thinking" | "reasoning" | "thinkingConfig" | "thinking_config" => Role::ThinkingSettings,
            "max_tokens" | "max_output_tokens" | "max_new_tokens" | "num_predict" => Role::MaxTokens,
            "max_completion_tokens" | "max_tokens_to_sample" => Role::MaxTokens,
            "maxOutputTokens" | "maxTokens" => Role::MaxTokens,
            // All `best_of` answers are generated and billed, though only `n` are returned.
            "n" | "best_of" | "candidateCount" | "candidate_count" => Role::Answers,
            "reasoning_effort" | "thinking_token_budget" => Role::Thinking,
            "previous_response_id" | "previous_interaction_id" | "conversation" => Role::StoredContext,
            "cachedContent" | "cached_content" => Role::StoredContext,
            _ => return None,
        })
    }

    /// Returns the role of the value under `key` in an object that has this role.
    pub fn inside(self, key: &str) -> Self {
        match self {
            Role::Json => Role::Json,
            // The Responses API has an object with the id of a stored prompt here.
            Role::Completions if key == "id" => Role::StoredContext,
            Role::ThinkingSettings if Self::of_field(key) == Some(Role::MaxTokens) => Role::Thinking,
            Role::Settings | Role::ThinkingSettings => match key {
                "schema" | "json_schema" | "responseSchema" | "response_schema" | "responseJsonSchema" => {
                    Role::Json
                }
                "format" => Role::Settings,
                "thinkingConfig" | "thinking_config" => Role::ThinkingSettings,
                "budget_tokens" | "thinkingBudget" | "thinking_budget" | "thinkingLevel"
                | "thinking_level" | "effort" => Role::Thinking,
                _ => match Self::of_field(key) {
                    Some(role @ (Role::Json | Role::MaxTokens | Role::Answers)) => role,
                    _ => Role::Ignored,
                },
            },
            _ => Self::of_part(key),
        }
    }

    /// Returns the role of the value under `key` in a message or a part of one.
    fn of_part(key: &str) -> Self {
        match key {
            "type" => Role::Type,
            "mimeType" | "mime_type" | "media_type" | "format" => Role::Format,
            "detail" => Role::Detail,
            "data" | "bytes" | "result" => Role::Data(None),
            "images" | "b64_json" | "image_base64" => Role::Data(Some(Media::Image)),
            // In Gemini's older spelling, `file_data` is an object that states its own MIME type.
            "file_data" => Role::Data(Some(Media::File)),
            "url" | "uri" => Role::Reference(None),
            "image_url" | "image" => Role::Reference(Some(Media::Image)),
            "input_audio" | "audio_url" | "audio" => Role::Reference(Some(Media::Sound)),
            "video_url" | "video" => Role::Reference(Some(Media::Video)),
            "file" | "file_id" | "file_url" | "fileUri" | "file_uri" | "document" | "document_url" => {
                Role::Reference(Some(Media::File))
            }
            "input" | "args" | "arguments" | "response" | "results" | "parameters" | "json" => Role::Json,
            "role" | "id" | "call_id" | "tool_call_id" | "tool_use_id" | "toolUseId" | "model" | "status"
            | "filename" | "cache_control" | "cachePoint" | "annotations" | "citations" | "logprobs"
            | "signature" | "thoughtSignature" | "thought_signature" | "encrypted_content" => Role::Ignored,
            _ => Role::Text,
        }
    }
}
