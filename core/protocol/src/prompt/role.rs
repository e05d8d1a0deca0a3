//! What stands behind a key, in the spellings of all providers.

use super::media::{Kind, Media};

const IMAGE: Option<Kind> = Some(Kind::Media(Media::Image));
const SOUND: Option<Kind> = Some(Kind::Media(Media::Sound));
const VIDEO: Option<Kind> = Some(Kind::Media(Media::Video));
const FILE: Option<Kind> = Some(Kind::Media(Media::File));

/// How many tokens a model thinks, by the words for it: as Google's documentation of Gemini gives them. `None` for any other word.
pub(super) fn effort(word: &str) -> Option<u64> {
    Some(match word.to_ascii_lowercase().as_str() {
        "none" => 0,
        "minimal" | "low" => 1_024,
        "medium" => 8_192,
        "high" | "xhigh" | "max" => 24_576,
        _ => return None,
    })
}

/// How a value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// What the model reads, at the top of the request: a text, token ids, or a list of messages.
    Prompt,
    /// An element of that list.
    Message,
    /// A text, or something with texts in it.
    Text,
    /// An element of a list in there.
    Element,
    /// The `type` of a part.
    Type,
    /// Its MIME type or format.
    Format,
    /// How closely an image is looked at.
    Detail,
    /// Base64, or an object around it; of this kind, where nothing else is said.
    Data(Option<Kind>),
    /// A URL or the id of something, or an object around it.
    Reference(Option<Kind>),
    /// What the model reads as JSON.
    Json,
    /// An object with some of the fields that also stand at the top.
    Settings,
    /// The most output tokens.
    MaxTokens,
    /// How many answers.
    Answers,
    /// How much it may think: tokens, or a word for them.
    Thinking,
    /// The name of something that the provider keeps, and the model reads before this.
    Kept,
    /// Only the provider reads it.
    Ignored,
}

impl Role {
    /// For a field of a request.
    pub fn of_field(key: &str) -> Option<Self> {
        Some(match key {
            "messages" | "system" | "input" | "instructions" | "prompt" | "suffix" | "contents"
            | "content" | "systemInstruction" | "system_instruction" | "requests" | "instances"
            | "message" | "chat_history" | "preamble" | "documents" | "query" | "texts" | "inputs" => {
                Role::Prompt
            }
            "images" => Role::Data(IMAGE),
            "tools" | "functions" => Role::Json,
            "generationConfig" | "generation_config" | "inferenceConfig" | "toolConfig" | "options"
            | "parameters" | "response_format" | "text" | "output_config" | "output_format" | "thinking"
            | "reasoning" | "thinkingConfig" | "thinking_config" => Role::Settings,
            "max_tokens"
            | "max_completion_tokens"
            | "max_output_tokens"
            | "max_tokens_to_sample"
            | "max_new_tokens"
            | "maxOutputTokens"
            | "maxTokens"
            | "num_predict" => Role::MaxTokens,
            // Of `best_of` answers all are made and billed, though only `n` are shown.
            "n" | "best_of" | "candidateCount" | "candidate_count" => Role::Answers,
            "reasoning_effort" | "thinking_token_budget" => Role::Thinking,
            "previous_response_id"
            | "previous_interaction_id"
            | "conversation"
            | "cachedContent"
            | "cached_content" => Role::Kept,
            _ => return None,
        })
    }

    /// For a value under this key of an object that counts so.
    pub(super) fn inside(self, key: &str) -> Self {
        match self {
            Role::Json => Role::Json,
            Role::Settings => match key {
                "schema" | "json_schema" | "responseSchema" | "response_schema" | "responseJsonSchema" => {
                    Role::Json
                }
                "format" | "thinkingConfig" | "thinking_config" => Role::Settings,
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

    fn of_part(key: &str) -> Self {
        match key {
            "type" => Role::Type,
            "mimeType" | "mime_type" | "media_type" | "format" => Role::Format,
            "detail" => Role::Detail,
            "data" | "bytes" | "result" => Role::Data(None),
            "images" | "b64_json" => Role::Data(IMAGE),
            // With Gemini's older spelling it is an object, which says its own MIME type.
            "file_data" => Role::Data(FILE),
            "url" | "uri" | "fileUri" | "file_uri" => Role::Reference(None),
            "image_url" | "image" => Role::Reference(IMAGE),
            "input_audio" | "audio_url" | "audio" => Role::Reference(SOUND),
            "video_url" | "video" => Role::Reference(VIDEO),
            "file" | "file_id" | "file_url" | "document" => Role::Reference(FILE),
            "input" | "args" | "arguments" | "response" | "parameters" | "json" => Role::Json,
            "role" | "id" | "call_id" | "tool_call_id" | "tool_use_id" | "toolUseId" | "model" | "status"
            | "filename" | "cache_control" | "cachePoint" | "annotations" | "logprobs" | "signature"
            | "thoughtSignature" | "thought_signature" | "encrypted_content" => Role::Ignored,
            _ => Role::Text,
        }
    }
}
