//! Generates a short text that matches a regular expression.

use regex_syntax::hir::{Class, Hir, HirKind};

/// Characters that are preferred in a class, because they are readable and need no escape in JSON.
const PREFERRED: [char; 6] = ['a', 'A', '0', '-', '_', ' '];
/// Longest text, in bytes, that is generated for a pattern.
const MAX_BYTES: usize = 4096;

/// Returns a text for a regular expression, in which each repetition occurs `extra` more times than
/// its minimum, if its maximum allows that. Assertions such as `\b` are ignored.
///
/// # Errors
///
/// Returns a message if the pattern contains lookaround or backreferences, or matches no text of at
/// most 4,096 bytes.
pub(super) fn matching(pattern: &str, extra: u32) -> Result<String, String> {
    let parsed = regex_syntax::parse(pattern);
    let unsupported =
        |_| format!("no text was found for `pattern` {pattern:?}, which has lookaround or backreferences");
    let hir = parsed.map_err(unsupported)?;
    let mut out = Vec::new();
    write(&hir, extra, &mut out).ok_or_else(|| format!("`pattern` {pattern:?} matches no short text"))?;
    String::from_utf8(out).map_err(|_| format!("`pattern` {pattern:?} matches no text"))
}

fn write(hir: &Hir, extra: u32, out: &mut Vec<u8>) -> Option<()> {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => out.extend_from_slice(&literal.0),
        HirKind::Class(class) => {
            let mut text = [0; 4];
            out.extend_from_slice(character(class)?.encode_utf8(&mut text).as_bytes());
        }
        HirKind::Repetition(repetition) => {
            let times = repetition.min.saturating_add(extra).min(repetition.max.unwrap_or(u32::MAX));
            for _ in 0..times {
                write(&repetition.sub, extra, out)?;
            }
        }
        HirKind::Capture(capture) => write(&capture.sub, extra, out)?,
        HirKind::Concat(parts) => parts.iter().try_for_each(|part| write(part, extra, out))?,
        HirKind::Alternation(options) => write(options.first()?, extra, out)?,
    }
    (out.len() <= MAX_BYTES).then_some(())
}

fn character(class: &Class) -> Option<char> {
    let ranges: Vec<(char, char)> = match class {
        Class::Unicode(class) => class.iter().map(|range| (range.start(), range.end())).collect(),
        Class::Bytes(class) => class.iter().map(|range| (range.start().into(), range.end().into())).collect(),
    };
    let preferred =
        PREFERRED.into_iter().find(|c| ranges.iter().any(|(start, end)| (start..=end).contains(&c)));
    preferred.or_else(|| ranges.first().map(|(start, _)| *start))
}
