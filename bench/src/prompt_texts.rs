//! Generates prompt texts of a given length in tokens, because the traces contain only lengths.
//!
//! There are four styles with very different characters per token: English prose and Rust (from
//! this repository), Chinese (common words in random order), and JSON full of UUIDs and numbers. A
//! text is a random stretch of the corpus of its style, cut at token boundaries of the tokenizer
//! `o200k`. Its exact length in tokens is returned with it.

use fastrand::Rng;

/// The kind of text in a tenant's prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    English,
    Rust,
    Chinese,
    Json,
}

impl Style {
    pub(crate) const ALL: [Style; 4] = [Style::English, Style::Rust, Style::Chinese, Style::Json];
}

/// The corpora that prompts are cut from, one per style, as tokens of the tokenizer `o200k`.
pub(crate) struct Corpora {
    tokens: [Vec<u32>; 4],
}

/// The English corpus. Like [`RUST`], it was copied once from this repository and never changes,
/// because a change of a corpus would change all figures.
const ENGLISH: &str = include_str!("../corpus/english.txt");
const RUST: &str = include_str!("../corpus/rust.txt");
const CHINESE: &[&str] = &[
    "我们", "今天", "明天", "因为", "所以", "如果", "但是", "问题", "系统", "模型", "服务", "用户", "请求",
    "时间", "城市", "学习", "工作", "生活", "朋友", "家庭", "可以", "需要", "已经", "正在", "非常", "重要",
    "不同", "简单", "复杂", "方法", "结果", "数据", "语言", "文章", "书", "水", "山", "海", "天气", "经济",
    "发展", "社会", "历史", "文化", "科学", "技术", "研究", "分析", "说明", "建议", "选择", "开始", "结束",
    "，", "。", "的", "了", "是", "在", "和", "有", "不", "也",
];
/// The number of words of the generated Chinese corpus. The JSON corpus has a twentieth as many
/// records.
const PIECES: usize = 20_000;

impl Corpora {
    pub(crate) fn new() -> Self {
        let tokenizer = bpe_openai::o200k_base();
        let mut rng = Rng::with_seed(1);
        let chinese: String = (0..PIECES).filter_map(|_| rng.choice(CHINESE)).copied().collect();
        let json: String = (0..PIECES / 20).map(|_| record(&mut rng)).collect();
        let texts = [ENGLISH.to_owned(), RUST.to_owned(), chinese, json];
        Self { tokens: texts.map(|text| tokenizer.encode(&text)) }
    }

    /// Cuts a random stretch of about `tokens` tokens from the corpus of `style`. Returns the text
    /// and its exact length in tokens.
    pub(crate) fn text(&self, style: Style, tokens: usize, rng: &mut Rng) -> (String, usize) {
        let tokenizer = bpe_openai::o200k_base();
        let Some(corpus) = self.tokens.get(style as usize).filter(|corpus| !corpus.is_empty()) else {
            return (String::new(), 0);
        };
        let start = rng.usize(..corpus.len());
        let cut: Vec<u32> = corpus.iter().cycle().skip(start).take(tokens).copied().collect();
        // If a cut falls inside a character of several tokens, the rest of the character is
        // dropped.
        let text = tokenizer.decode(&cut).unwrap_or_else(|| {
            let trimmed = cut.get(1..cut.len().saturating_sub(1)).unwrap_or_default();
            tokenizer.decode(trimmed).unwrap_or_default()
        });
        let counted = tokenizer.count(&text);
        (text, counted)
    }
}

fn record(rng: &mut Rng) -> String {
    format!(
        "{{\"id\":\"{:08x}-{:04x}-{:04x}-{:012x}\",\"at\":{},\"amount\":{}.{:02},\"ok\":{}}},",
        rng.u32(..),
        rng.u16(..),
        rng.u16(..),
        rng.u64(..1 << 48),
        rng.u64(1_700_000_000..1_800_000_000),
        rng.u32(..100_000),
        rng.u32(..100),
        rng.bool(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_the_requested_tokens_and_styles_differ() {
        let (corpora, mut rng) = (Corpora::new(), Rng::with_seed(7));
        let bytes = Style::ALL.map(|style| {
            let (text, tokens) = corpora.text(style, 1_000, &mut rng);
            assert!((980..=1_020).contains(&tokens), "{style:?}: {tokens}");
            text.len() as f64 / tokens as f64
        });
        assert!(bytes[0] > 1.5 * bytes[3], "{bytes:?}");
    }
}
