//! Parses TOML into the generic tree, with line numbers.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::schema::problems::Problems;
use crate::schema::tree::{Entry, Node, Table, Value};

/// The maximum number of syntax errors that are reported. A file that is not TOML has one per line.
const MOST_SYNTAX_ERRORS: usize = 20;

/// Parses TOML. Returns `None` and reports problems if it is malformed.
pub(super) fn read(text: &str, problems: &Problems) -> Option<Node> {
    let lines = Lines::new(text);
    let (document, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        let value = Value::Table(table(document.get_ref(), &lines));
        return Some(Node { value, line: None });
    }
    for error in errors.iter().take(MOST_SYNTAX_ERRORS) {
        // Only the message is used: the crate's display quotes the line, which may hold a
        // credential.
        let (line, column) = error.span().map(|span| lines.position(text, span.start)).unzip();
        let column = column.map(|column| format!("column {column}: ")).unwrap_or_default();
        problems.add(line, "", format!("{column}not valid TOML: {}", error.message()));
    }
    None
}

fn table(table: &DeTable<'_>, lines: &Lines) -> Table {
    let mut entries = Vec::with_capacity(table.len());
    for (key, value) in table {
        let node =
            Node { value: value_of(value.get_ref(), lines), line: Some(lines.line(value.span().start)) };
        let line = Some(lines.line(key.span().start));
        entries.push(Entry { key: key.get_ref().to_string(), line, node });
    }
    Table { entries }
}

fn value_of(value: &DeValue<'_>, lines: &Lines) -> Value {
    match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Boolean(flag) => Value::Bool(*flag),
        DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Value::Whole(number),
            Err(_) => Value::Other("a number too large to read"),
        },
        DeValue::Float(number) => match number.as_str().parse() {
            Ok(number) => Value::Float(number),
            Err(_) => Value::Other("a number that cannot be read"),
        },
        DeValue::Datetime(_) => Value::Other("a date or time of day"),
        DeValue::Array(items) => {
            let node = |item: &Spanned<DeValue<'_>>| Node {
                value: value_of(item.get_ref(), lines),
                line: Some(lines.line(item.span().start)),
            };
            Value::List(items.iter().map(node).collect())
        }
        DeValue::Table(inner) => Value::Table(table(inner, lines)),
    }
}

/// The offset at which each line of a text begins.
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
