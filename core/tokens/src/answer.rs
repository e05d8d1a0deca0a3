//! Length of an answer per kind of task, before anything is learned.

use super::COLD_OUTPUT;
use tidegate_protocol::prompt::{Prompt, Task};

/// How long one answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The length is determined by the request. 0: there is no answer.
    Stated(u64),
    /// The length until it is learned.
    Learned(u64),
}

/// Returns the rule for the length of one answer to a task.
pub(super) fn answer(task: Task, prompt: Option<&Prompt>) -> Answer {
    let prompt = prompt.copied().unwrap_or_default();
    match task {
        Task::Embed | Task::Rank | Task::Classify => Answer::Stated(0),
        Task::Image => Answer::Learned(4_160),
        Task::Video => Answer::Learned(2_104),
        Task::Speech => Answer::Stated(prompt.text_bytes.saturating_mul(3).div_ceil(2)),
        Task::Transcribe => Answer::Stated(prompt.media_tokens.div_ceil(8)),
        Task::Text | Task::Other => Answer::Learned(
            prompt.max_tokens.unwrap_or_else(|| COLD_OUTPUT.saturating_add(prompt.thinking.unwrap_or(0))),
        ),
    }
}
