//! Reads the facts of a request that its URL path states: purpose, dialect, task and model.

use std::ops::Range;

use super::{Dialect, Purpose, RequestFacts};
use crate::{base_url::is_version, json_edit::range_of, prompt::Task};

/// Returns the byte range of the model's name in a URL path, or `None` if the path names no model.
/// Azure deployments, Gemini and Bedrock name it in the path.
pub fn model_in_path(path: &str) -> Option<Range<usize>> {
    range_of(path, Path::read(path).model?)
}

/// What the URL path of a request says about the request: its dialect and task, and its model if
/// the path names one.
pub(super) struct Path<'a> {
    /// The facts without the model and the prompt.
    pub(super) facts: RequestFacts,
    /// The model as written in the path, percent-encoded. `None` if the path names none.
    pub(super) model: Option<&'a str>,
    /// Whether the endpoint runs no model if the body has no `inputs`.
    pub(super) needs_inputs: bool,
}

impl From<RequestFacts> for Path<'_> {
    fn from(facts: RequestFacts) -> Self {
        Self { facts, model: None, needs_inputs: false }
    }
}

impl<'a> Path<'a> {
    /// Creates the facts of a known inference endpoint that generates text in this dialect.
    fn inference(dialect: Dialect) -> Self {
        RequestFacts { dialect, task: Task::Text, repeatable: true, ..RequestFacts::unknown() }.into()
    }

    /// Creates the facts of a known inference endpoint of [`Dialect::Other`] that performs this
    /// task.
    fn task(task: Task) -> Self {
        RequestFacts { task, repeatable: true, ..RequestFacts::unknown() }.into()
    }

    /// Creates the facts of an endpoint that runs no model.
    pub(super) fn bypass() -> Self {
        RequestFacts { purpose: Purpose::Other, ..RequestFacts::unknown() }.into()
    }

    /// Creates the facts of Mistral's conversations, which run a model. OpenAI's conversations have
    /// the same paths. They store items and have no `inputs`.
    fn conversation() -> Self {
        let facts = RequestFacts { task: Task::Text, ..RequestFacts::unknown() };
        Self { needs_inputs: true, ..facts.into() }
    }

    fn named(self, model: &'a str) -> Self {
        Self { model: Some(model), ..self }
    }

    fn streamed(mut self) -> Self {
        self.facts.stream = true;
        self
    }

    /// Returns the facts that a path states. An unknown path is inference that must not be
    /// repeated.
    pub(super) fn read(path: &'a str) -> Self {
        // Only the last segments are matched, because gateways add prefixes and never suffixes.
        let mut segments = path.rsplit('/').filter(|segment| !segment.is_empty());
        let [last, second, third] =
            [segments.next(), segments.next(), segments.next()].map(Option::unwrap_or_default);

        if matches!(second, "models" | "tunedModels" | "endpoints")
            && let Some((model, verb)) = last.rsplit_once(':')
        {
            return Self::google(path, model, verb);
        }
        let found = match (third, second, last) {
            ("threads", _, "messages") => Self::bypass(),
            ("threads", _, "runs") | (_, "threads", "runs") => RequestFacts::unknown().into(),
            (_, _, "submit_tool_outputs") => RequestFacts::unknown().into(),
            (_, "chat" | "fim" | "agents", "completions") => Self::inference(Dialect::OpenAiChat),
            (_, _, "completions") => Self::inference(Dialect::OpenAiCompletions),
            (_, _, "responses") => Self::inference(Dialect::OpenAiResponses),
            (_, _, "messages") => Self::inference(Dialect::AnthropicMessages),
            ("model", model, "converse") => Self::task(Task::Text).named(model),
            ("model", model, "converse-stream") => Self::task(Task::Text).named(model).streamed(),
            ("model", model, "invoke") => Self::task(Task::from_model(model)).named(model),
            ("model", model, "invoke-with-response-stream") => {
                Self::task(Task::Other).named(model).streamed()
            }
            (_, "images", "generations" | "edits" | "variations") => Self::task(Task::Image),
            (_, "audio", "speech") => Self::task(Task::Speech),
            (_, "audio", "transcriptions" | "translations") => Self::task(Task::Transcribe),
            (_, _, "embeddings") | (_, "api" | "v1" | "v2", "embed") => Self::task(Task::Embed),
            (_, _, "rerank") | (_, "" | "v1" | "v2", "score") => Self::task(Task::Rank),
            (_, _, "moderations") | (_, "" | "v1" | "v2", "classify" | "pooling") => {
                Self::task(Task::Classify)
            }
            (_, "responses", "compact")
            | (_, "api", "chat" | "generate")
            | (_, "v1" | "v2", "chat" | "complete" | "ocr") => Self::task(Task::Text),
            (_, _, "videos") => RequestFacts { task: Task::Video, ..RequestFacts::unknown() }.into(),
            (_, _, "count_tokens" | "input_tokens" | "tokenize" | "detokenize" | "models") => Self::bypass(),
            ("model", _, "count-tokens") => Self::bypass(),
            ("responses" | "runs" | "interactions", _, "cancel") => Self::bypass(),
            // vLLM: one answer to each of several conversations.
            ("chat", "completions", "batch") => Self::inference(Dialect::OpenAiChat),
            // Changes the metadata of a stored completion.
            ("chat", "completions", _) => Self::bypass(),
            _ => {
                let version = path.split('/').position(is_version).map_or(0, |at| at + 1);
                let mut resources = path.split('/').skip(version);
                if resources.clone().any(runs_no_model) {
                    Self::bypass()
                } else if resources.any(|segment| segment == "conversations") {
                    Self::conversation()
                } else {
                    RequestFacts::unknown().into()
                }
            }
        };
        Self { model: deployment(path).or(found.model), ..found }
    }

    /// Returns the facts of a path of Gemini or Vertex AI, which ends in `models/{model}:{verb}`.
    fn google(path: &str, model: &'a str, verb: &str) -> Self {
        match verb {
            // Anthropic on Vertex AI counts tokens with a pseudo-model of this name.
            _ if model == "count-tokens" => Self::bypass(),
            // Both verbs may stream: the field `stream` of the body decides, as at Anthropic
            // itself.
            "rawPredict" | "streamRawPredict" if path.contains("/publishers/anthropic/") => {
                Self::inference(Dialect::AnthropicMessages).named(model)
            }
            "generateContent" => Self::inference(Dialect::Gemini).named(model),
            "streamGenerateContent" => Self::inference(Dialect::Gemini).named(model).streamed(),
            "embedContent" | "batchEmbedContents" => Self::task(Task::Embed).named(model),
            "predict" | "rawPredict" => Self::task(Task::from_model(model)).named(model),
            "streamRawPredict" | "serverStreamingPredict" => Self::task(Task::Other).named(model).streamed(),
            "countTokens" | "computeTokens" | "cancel" => Self::bypass(),
            "batchGenerateContent" | "asyncBatchEmbedContent" | "fetchPredictOperation" => Self::bypass(),
            _ => Self::from(RequestFacts::unknown()).named(model),
        }
    }
}

/// Returns `true` if a path with this segment has POST requests that run no model while the caller
/// waits: those to collections such as `files`, and the administration of vLLM.
fn runs_no_model(segment: &str) -> bool {
    match segment {
        "assistants" | "batches" | "cachedContents" | "chatkit" | "containers" | "corpora" | "evals"
        | "fileSearchStores" | "files" | "fine_tuning" | "fine-tunes" | "jobs" | "organization"
        | "organizations" | "realtime" | "skills" | "threads" | "tunedModels" | "uploads"
        | "vector_stores" | "webhooks" | "load_lora_adapter" | "reset_prefix_cache" | "sleep" | "wake_up" => {
            true
        }
        _ => segment == "batchPredictionJobs" || segment == "unload_lora_adapter",
    }
}

/// Returns the deployment in an Azure path (`/openai/deployments/{deployment}/...`), or `None` for
/// other paths.
fn deployment(path: &str) -> Option<&str> {
    let (_, rest) = path.split_once("/deployments/")?;
    rest.split('/').next()
}
