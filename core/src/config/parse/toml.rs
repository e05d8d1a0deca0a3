//! TOML text to tree, with line numbers.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::schema::problems::Problems;
use crate::config::schema::tree::{Entry, Node, Table, Value};

/// A file that is no TOML at all would otherwise be answered with as many errors as it has lines.
const MOST_SYNTAX_ERRORS: usize = 20;

/// Reads TOML; `None` when it is malformed, which is then among the problems.
pub(super) fn read(text: &str, problems: &Problems) -> Option<Node> {
    let lines = Lines::new(text);
    let (document, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        let value = Value::Table(table(document.get_ref(), &lines));
        return Some(Node { value, line: None });
    }
    for error in errors.iter().take(MOST_SYNTAX_ERRORS) {
        // The crate's own rendering quotes the source line, which may hold a credential: only its verdict is used.
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

/// Where each line of a text begins.
struct Lines(Vec<usize>);

impl Lines {
    fn new(text: &str) -> Self {
        let breaks = memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1);
        Self(std::iter::once(0).chain(breaks).collect())
    }

    /// The line, from 1, that a byte offset is on.
    fn line(&self, offset: usize) -> usize {
        self.0.partition_point(|start| *start <= offset)
    }

    /// The line and the column, both from 1 and the column in characters.
    fn position(&self, text: &str, offset: usize) -> (usize, usize) {
        let line = self.line(offset);
        let start = self.0.get(line.saturating_sub(1)).copied().unwrap_or(0);
        let before = text.get(start..offset).map_or(0, |before| before.chars().count());
        (line, before + 1)
    }
}
