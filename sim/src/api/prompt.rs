//! Counts the tokens of a prompt, and hashes its KV blocks.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value};

/// Keys of a request body whose text the model reads, in the order in which a chat template places
/// them.
const PROMPT_KEYS: [&str; 8] =
    ["tools", "system", "instructions", "systemInstruction", "messages", "prompt", "input", "contents"];
/// Keys of nested objects whose values do not count as text of the prompt.
const IGNORED_KEYS: [&str; 3] = ["role", "type", "id"];
/// Bytes of UTF-8 text that count as one token.
pub(super) const TOKEN_BYTES: u64 = 4;

/// Length and block hashes of a prompt.
#[derive(Debug, PartialEq)]
pub(super) struct Prompt {
    /// Number of tokens, at least 1: one per four bytes of text, rounded up, plus one per token id.
    pub(super) tokens: u64,
    /// Hash of each full block of the prompt, in order. A hash covers the model, `cache_salt`, and
    /// all text and token ids up to the end of the block. Empty if [`read`] got no block size.
    pub(super) blocks: Vec<u64>,
}

/// Counts the tokens of the prompt in a request body, and hashes its full blocks. `block_size` is
/// in tokens; `None` means that no hashes are needed.
pub(super) fn read(model: &str, body: &Map<String, Value>, block_size: Option<u32>) -> Prompt {
    let mut sum =
        PromptReader { bytes: 0, ids: 0, chain: block_size.map(|size| BlockHasher::new(size, model, body)) };
    for value in PROMPT_KEYS.iter().filter_map(|key| body.get(*key)) {
        sum.add(value);
    }
    let blocks = sum.chain.map_or_else(Vec::new, |chain| chain.blocks);
    Prompt { tokens: (sum.bytes.div_ceil(TOKEN_BYTES) + sum.ids).max(1), blocks }
}

struct PromptReader {
    bytes: u64,
    ids: u64,
    chain: Option<BlockHasher>,
}

impl PromptReader {
    /// Adds all texts and token ids in a JSON value to the prompt. The recursion is bounded,
    /// because the JSON parser limits the depth of a body.
    fn add(&mut self, value: &Value) {
        match value {
            Value::String(text) => {
                self.bytes += text.len() as u64;
                if let Some(chain) = &mut self.chain {
                    chain.feed(text.as_bytes());
                }
            }
            Value::Number(id) => {
                self.ids += 1;
                if let Some(chain) = &mut self.chain {
                    // Four bytes, as for a token of text. Token ids fit in 32 bits.
                    chain.feed(&(id.as_u64().unwrap_or_default() as u32).to_le_bytes());
                }
            }
            Value::Array(parts) => parts.iter().for_each(|part| self.add(part)),
            Value::Object(fields) => fields
                .iter()
                .filter(|(key, _)| !IGNORED_KEYS.contains(&key.as_str()))
                .for_each(|(_, value)| self.add(value)),
            Value::Bool(_) | Value::Null => {}
        }
    }
}

/// A hasher that computes one hash for each full block of a prompt. The hash of a block covers that
/// block and all blocks before it.
struct BlockHasher {
    hasher: DefaultHasher,
    block_bytes: usize,
    /// Number of bytes until the current block is full, above 0.
    missing: usize,
    blocks: Vec<u64>,
}

impl BlockHasher {
    fn new(block_size: u32, model: &str, body: &Map<String, Value>) -> Self {
        let mut hasher = DefaultHasher::new();
        (model, body.get("cache_salt").and_then(Value::as_str)).hash(&mut hasher);
        let block_bytes = (block_size as usize).saturating_mul(TOKEN_BYTES as usize).max(1);
        Self { hasher, block_bytes, missing: block_bytes, blocks: Vec::new() }
    }

    fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at(self.missing.min(bytes.len()));
            self.hasher.write(now);
            self.missing -= now.len();
            bytes = rest;
            if self.missing == 0 {
                self.blocks.push(self.hasher.finish());
                self.missing = self.block_bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(model: &str, body: &Value) -> Prompt {
        read(model, body.as_object().unwrap(), Some(2))
    }

    #[test]
    fn prompts_with_a_common_prefix_share_its_blocks() {
        let chat = |system: &str, user: &str| json!({"messages": [{"role": "system", "content": system}, {"role": "user", "content": user}]});
        let one = of("m", &chat("You are a tide.", "Rise and fall, again."));
        assert_eq!((one.tokens, one.blocks.len()), (9, 4), "36 bytes are 9 tokens in 4 full blocks");
        let other = of("m", &chat("You are a tide.", "Rise no more."));
        assert_eq!(one.blocks[..2], other.blocks[..2], "16 bytes are two blocks");
        assert_ne!(one.blocks[2], other.blocks[2]);
        assert_eq!(
            one,
            of("m", &chat("You are", " a tide.Rise and fall, again.")),
            "the split into messages does not matter"
        );
        let salted =
            json!({"cache_salt": "a", "messages": [{"role": "system", "content": "You are a tide."}]});
        assert_ne!(of("m", &salted).blocks[0], one.blocks[0]);
        assert_ne!(of("adapter", &chat("You are a tide.", "")).blocks[0], one.blocks[0]);
        assert!(read("m", chat("You are a tide.", "").as_object().unwrap(), None).blocks.is_empty());
    }

    #[test]
    fn each_token_id_counts_as_one_token() {
        let prompt = of("m", &json!({"prompt": [1, 2, 3, 4, 5]}));
        assert_eq!((prompt.tokens, prompt.blocks.len()), (5, 2));
        assert_eq!(prompt.blocks[0], of("m", &json!({"prompt": [1, 2, 9]})).blocks[0]);
    }
}
