//! Conversations whose prompts share prefixes: a few system prompts, and the turns so far.

use std::time::Duration;

use fastrand::Rng;
use http::Request;
use serde_json::json;
use tidegate::RequestBody;

use super::super::load::chat_request;

/// The number of system prompts. The one of rank `n` begins a share of the conversations that is
/// proportional to `1 / n`.
const SYSTEMS: u32 = 8;
/// The lengths of messages, in tokens. Both bounds are included.
const SYSTEM: (u32, u32) = (260, 400);
const USER: (u32, u32) = (20, 80);
const ANSWER: (u32, u32) = (16, 48);
/// The longest prompt, in tokens. With its answer it is below the servers' 1,024 tokens.
const LONGEST: u32 = 940;
/// The probability that a turn is the last of its conversation.
const LAST: f64 = 0.2;
/// The mean number of turns of a conversation.
const TURNS: f64 = 3.8;
/// The time between two turns: a constant, and an exponential distribution with a mean, in seconds.
const THINKING: (f64, f64) = (2.0, 4.0);
/// The time before the trace in which conversations begin, so that its load is even.
const LEAD: f64 = 30.0;
/// The tokens that the chat template adds to each message, and to the prompt.
const PER_MESSAGE: u32 = 2;
const PER_PROMPT: u32 = 1;

/// A message. Messages with the same `id` have the same text in the same run.
#[derive(Clone, Copy, Debug)]
struct Message {
    id: u64,
    words: u32,
}

/// A call: one turn of a conversation.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    /// Time from the start of the run.
    pub(super) at: Duration,
    messages: Vec<Message>,
    /// Tokens of the answer.
    pub(super) output: u32,
}

/// Draws the turns of a trace that `lasts` a time, with about `per_second` of them. A turn does not
/// wait for the answer of the turn before, and the next prompt contains words that were drawn
/// instead of that answer. So all placements get the same calls.
pub(super) fn draw(seed: u64, per_second: f64, lasts: Duration) -> Vec<Turn> {
    let mut rng = Rng::with_seed(seed);
    let mut next_id = 0;
    let mut message = |rng: &mut Rng, (least, most): (u32, u32)| {
        next_id += 1;
        Message { id: next_id, words: rng.u32(least..=most) }
    };
    let systems: Vec<Message> = (0..SYSTEMS).map(|_| message(&mut rng, SYSTEM)).collect();
    let mut turns = Vec::new();
    let mut begins = -LEAD;
    while begins < lasts.as_secs_f64() {
        begins += exponential(&mut rng, TURNS / per_second);
        let mut at = begins;
        let mut messages = vec![pick(&mut rng, &systems)];
        loop {
            messages.push(message(&mut rng, USER));
            if prompt_tokens(&messages) > LONGEST {
                break;
            }
            let answer = message(&mut rng, ANSWER);
            if (0.0..lasts.as_secs_f64()).contains(&at) {
                let at = Duration::from_secs_f64(at);
                turns.push(Turn { at, messages: messages.clone(), output: answer.words });
            }
            if rng.f64() < LAST {
                break;
            }
            messages.push(answer);
            at += THINKING.0 + exponential(&mut rng, THINKING.1);
        }
    }
    turns.sort_by_key(|turn| turn.at);
    turns
}

impl Turn {
    /// Returns the length of the prompt in tokens.
    pub(super) fn prompt_tokens(&self) -> u32 {
        prompt_tokens(&self.messages)
    }

    /// Returns the request. Runs with different `nonce`s share no prefix.
    pub(super) fn request(&self, base: &str, nonce: u64) -> Request<RequestBody> {
        let message = |(nth, message): (usize, &Message)| {
            let role = if nth == 0 {
                "system"
            } else if nth % 2 == 1 {
                "user"
            } else {
                "assistant"
            };
            json!({"role": role, "content": message.text(nonce)})
        };
        let messages: Vec<_> = self.messages.iter().enumerate().map(message).collect();
        chat_request(base, &messages, self.prompt_tokens(), self.output)
    }

    /// Returns a hash of each full block of the prompt, as an engine has them in its prefix cache.
    pub(super) fn blocks(&self, block_size: u32) -> Vec<u64> {
        let tokens: Vec<(u64, u32)> = self
            .messages
            .iter()
            .flat_map(|message| (0..message.words + PER_MESSAGE).map(|place| (message.id, place)))
            .collect();
        let mut hash = 0u64;
        let block = |tokens: &[(u64, u32)]| {
            for (id, place) in tokens {
                hash = Rng::with_seed(hash ^ (id << 16) ^ u64::from(*place)).u64(..);
            }
            hash
        };
        tokens.chunks_exact(block_size as usize).map(block).collect()
    }
}

impl Message {
    /// Returns words of three letters, so that a token has four bytes, as the simulator assumes.
    fn text(&self, nonce: u64) -> String {
        let mut rng = Rng::with_seed(nonce ^ (self.id << 32));
        let words: Vec<String> = (0..self.words).map(|_| format!("w{}", rng.u32(10..100))).collect();
        words.join(" ")
    }
}

fn prompt_tokens(messages: &[Message]) -> u32 {
    messages.iter().map(|message| message.words + PER_MESSAGE).sum::<u32>() + PER_PROMPT
}

fn pick(rng: &mut Rng, systems: &[Message]) -> Message {
    let share = |rank: usize| 1.0 / (rank + 1) as f64;
    let mut left = rng.f64() * (0..systems.len()).map(share).sum::<f64>();
    let place = (0..systems.len()).position(|rank| {
        left -= share(rank);
        left <= 0.0
    });
    // The list is not empty, and the last one is taken if rounding leaves a rest.
    place
        .and_then(|place| systems.get(place))
        .or(systems.last())
        .copied()
        .unwrap_or(Message { id: 0, words: 1 })
}

fn exponential(rng: &mut Rng, mean: f64) -> f64 {
    -mean * (1.0 - rng.f64()).ln()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn turns_share_prefixes_and_fit_into_the_server() {
        let turns = draw(1, 10.0, Duration::from_secs(120));
        assert!((900..1_500).contains(&turns.len()), "{}", turns.len());
        assert!(turns.iter().all(|turn| turn.prompt_tokens() + turn.output <= 1_024));
        let mut seen = HashSet::new();
        let (mut shared, mut all) = (0.0, 0.0);
        for turn in &turns {
            for block in turn.blocks(32) {
                all += 1.0;
                shared += f64::from(u8::from(!seen.insert(block)));
            }
        }
        let share = shared / all;
        assert!((0.6..0.95).contains(&share), "{share}");
    }

    #[test]
    fn text_depends_on_the_nonce_and_has_four_bytes_per_token() {
        let message = Message { id: 7, words: 100 };
        assert_eq!(message.text(1), message.text(1));
        assert_ne!(message.text(1), message.text(2));
        assert_eq!(message.text(1).len(), 399);
    }
}
