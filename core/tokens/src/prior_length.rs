//! The default length of one answer, by the task of the call. It applies until responses were
//! learned.

use super::COLD_OUTPUT;
use tidegate_protocol::prompt::{Prompt, Task};

/// The length of one answer, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerLength {
    /// The request determines the length. 0: the task has no output tokens.
    Stated(u64),
    /// The length is learned from responses. The value is the estimate before the first response.
    Learned(u64),
}

/// Returns the length of one answer to a call of this task. `prompt` is the default if the body was
/// not readable.
pub(super) fn answer_length(task: Task, prompt: &Prompt) -> AnswerLength {
    match task {
        Task::Embed | Task::Rank | Task::Classify => AnswerLength::Stated(0),
        Task::Image => AnswerLength::Learned(4_160),
        Task::Video => AnswerLength::Learned(2_104),
        Task::Speech => AnswerLength::Stated(prompt.text_bytes.saturating_mul(3).div_ceil(2)),
        Task::Transcribe => AnswerLength::Stated(prompt.media_tokens.div_ceil(8)),
        Task::Text | Task::Other => AnswerLength::Learned(
            prompt.max_tokens.unwrap_or_else(|| COLD_OUTPUT.saturating_add(prompt.thinking.unwrap_or(0))),
        ),
    }
}
