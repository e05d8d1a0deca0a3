//! Parses TOML into the tree of untyped values, with line numbers.

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::schema::{Entry, Node, Problems, Table, Value};

/// The maximum number of syntax errors that are reported. A file in another format has an error on
/// almost every line.
const MAX_SYNTAX_ERRORS: usize = 20;

/// Parses TOML. If it is malformed, reports the syntax errors and returns `None`.
pub(super) fn read(text: &str, problems: &Problems) -> Option<Node> {
    let lines = Lines::new(text);
    let (document, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Some(Value::Table(table(document.get_ref(), &lines)).into());
    }
    for error in errors.iter().take(MAX_SYNTAX_ERRORS) {
        // Only the message is used: the crate's display quotes the line, which may hold a
        // credential.
        let (line, column) = error.span().map(|span| lines.position(text, span.start)).unzip();
        let column = column.map(|column| format!("column {column}: ")).unwrap_or_default();
        problems.add(line, "", format!("{column}not valid TOML: {}", error.message()));
    }
    None
}

fn table(table: &DeTable<'_>, lines: &Lines) -> Table {
    let entry = |(key, value): (&Spanned<DeString<'_>>, &_)| Entry {
        key: key.get_ref().to_string(),
        line: Some(lines.line(key.span().start)),
        node: node(value, lines),
    };
    Table { entries: table.iter().map(entry).collect() }
}

fn node(value: &Spanned<DeValue<'_>>, lines: &Lines) -> Node {
    let line = Some(lines.line(value.span().start));
    let value = match value.get_ref() {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Boolean(flag) => Value::Bool(*flag),
        DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
            .map_or(Value::Other("a number too large to read"), Value::Whole),
        DeValue::Float(number) => {
            number.as_str().parse().map_or(Value::Other("a number that cannot be read"), Value::Float)
        }
        DeValue::Datetime(_) => Value::Other("a date or time of day"),
        DeValue::Array(items) => Value::List(items.iter().map(|item| node(item, lines)).collect()),
        DeValue::Table(inner) => Value::Table(table(inner, lines)),
    };
    Node { value, line }
}

/// The byte offset at which each line of a text starts.
struct Lines(Vec<usize>);

impl Lines {
    fn new(text: &str) -> Self {
        let breaks = memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1);
        Self(std::iter::once(0).chain(breaks).collect())
    }

    /// Returns the line of a byte offset, from 1.
    fn line(&self, offset: usize) -> usize {
        self.0.partition_point(|start| *start <= offset)
    }

    /// Returns the line and the column of a byte offset, both from 1. The column is in characters.
    fn position(&self, text: &str, offset: usize) -> (usize, usize) {
        let line = self.line(offset);
        let start = self.0.get(line.saturating_sub(1)).copied().unwrap_or(0);
        let before = text.get(start..offset).map_or(0, |before| before.chars().count());
        (line, before + 1)
    }
}
