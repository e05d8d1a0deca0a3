//! Generates prompts of a given length from random common words of about one token each.

use fastrand::Rng;

const WORDS: [&str; 120] = [
    "time", "people", "water", "words", "place", "work", "world", "house", "school", "night", "story",
    "point", "city", "tree", "river", "light", "paper", "music", "table", "money", "horse", "stone", "field",
    "ship", "plan", "north", "south", "east", "west", "winter", "summer", "spring", "green", "black",
    "white", "blue", "long", "small", "great", "little", "young", "early", "open", "close", "strong",
    "clear", "full", "half", "whole", "simple", "real", "free", "dark", "warm", "cold", "deep", "high",
    "low", "near", "far", "walk", "turn", "move", "play", "read", "write", "learn", "build", "carry",
    "bring", "watch", "follow", "begin", "show", "hear", "stand", "change", "answer", "grow", "study",
    "cover", "reach", "travel", "measure", "order", "number", "letter", "mountain", "island", "market",
    "garden", "street", "window", "door", "floor", "wall", "hand", "head", "face", "voice", "friend",
    "mother", "father", "child", "king", "team", "power", "force", "heat", "rain", "snow", "wind", "fire",
    "star", "moon", "earth", "sun", "sea", "bird", "fish",
];

/// Assumed tokens of the fixed part of a prompt: the nonce and the instruction before the random
/// words.
const FRAME: u64 = 24;

/// Returns a prompt of about `tokens` tokens, but at least [`FRAME`], that asks for an answer of
/// `output` words. The prompt starts with `nonce`, which must be unique so that the server's prefix
/// cache does not contain the prompt.
pub(super) fn prompt(nonce: &str, tokens: u64, output: u64, rng: &mut Rng) -> String {
    let words = tokens.saturating_sub(FRAME);
    // Asks for an answer of the full length.
    let mut text = format!("{nonce} Write at length, at least {output} words, about:");
    text.reserve(words as usize * 6);
    for _ in 0..words {
        text.push(' ');
        text.push_str(rng.choice(WORDS).unwrap_or("time"));
    }
    text
}
