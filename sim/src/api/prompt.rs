//! How long a prompt is, and what it shares with others.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value};

/// Keys whose text the model reads, in the order in which a template puts them.
const PROMPT_KEYS: [&str; 8] =
    ["tools", "system", "instructions", "systemInstruction", "messages", "prompt", "input", "contents"];
/// Keys within them that are form, not text.
const IGNORED_KEYS: [&str; 3] = ["role", "type", "id"];
/// Bytes of text that count as a token.
const TOKEN_BYTES: u64 = 4;

/// What the model reads of a request.
#[derive(Debug, PartialEq)]
pub(super) struct Prompt {
    /// UTF-8 bytes over four, token ids one each; at least one.
    pub(super) tokens: u64,
    /// The hashes of its full blocks, each of all before its end: of the model, `cache_salt`, text and token ids. Empty where no block size was given.
    pub(super) blocks: Vec<u64>,
}

/// Reads a prompt; `block_size` in tokens, `None` for one that nobody shares.
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
    /// Recursion is bounded by the JSON parser's own limit of depth.
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
                    // As long as a token of text. Ids of a vocabulary fit.
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

/// Hashes one block after the other, each with all before it.
struct BlockHasher {
    hasher: DefaultHasher,
    block_bytes: usize,
    /// Bytes that the block under way lacks.
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
        assert_eq!((one.tokens, one.blocks.len()), (9, 4), "36 bytes");
        let other = of("m", &chat("You are a tide.", "Rise no more."));
        assert_eq!(one.blocks[..2], other.blocks[..2], "16 bytes are two blocks");
        assert_ne!(one.blocks[2], other.blocks[2]);
        assert_eq!(
            one,
            of("m", &chat("You are", " a tide.Rise and fall, again.")),
            "how it is split is form"
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
