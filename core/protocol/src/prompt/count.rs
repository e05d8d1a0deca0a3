//! Counts a JSON value while it is parsed, and keeps nothing of it.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::Prompt;
use super::part::Piece;
use super::role::{Role, effort};

/// Counts one value into a prompt. Returns as a [`Piece`] what describes a part but belongs to the
/// enclosing object.
struct Walk<'a> {
    prompt: &'a mut Prompt,
    role: Role,
}

impl Prompt {
    /// Counts the next value of a request.
    pub(crate) fn take<'de, A: MapAccess<'de>>(&mut self, role: Role, map: &mut A) -> Result<(), A::Error> {
        map.next_value_seed(Walk { prompt: self, role })?.settle(self);
        Ok(())
    }
}

impl Walk<'_> {
    fn number(self, value: u64) -> Piece {
        match self.role {
            Role::MaxTokens => self.prompt.max_tokens = self.prompt.max_tokens.max(Some(value)),
            Role::Answers => self.prompt.answers = self.prompt.answers.max(Some(value)),
            Role::Thinking => self.prompt.thinking = self.prompt.thinking.max(Some(value)),
            Role::Json => self.prompt.text(u64::from(value.checked_ilog10().unwrap_or(0)) + 1),
            Role::Message | Role::Element => self.prompt.token_id(),
            _ => {}
        }
        Piece::default()
    }

    fn json(self, bytes: usize) -> Piece {
        if self.role == Role::Json {
            self.prompt.text(bytes as u64);
        }
        Piece::default()
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = Piece;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Piece, D::Error> {
        if self.role == Role::Ignored {
            return deserializer.deserialize_ignored_any(IgnoredAny).map(|_| Piece::default());
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = Piece;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E>(self) -> Result<Piece, E> {
        Ok(self.json("null".len()))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Piece, E> {
        Ok(self.json(if value { "true" } else { "false" }.len()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Piece, E> {
        Ok(self.number(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Piece, E> {
        let digits = value.unsigned_abs().checked_ilog10().unwrap_or(0) as usize + 1;
        Ok(self.json(1 + digits))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Piece, E> {
        Ok(match self.role {
            // Some clients write `12.0`. The cast saturates.
            Role::MaxTokens | Role::Answers | Role::Thinking if value >= 0.0 => self.number(value as u64),
            // With an exponent if JSON has one: written out, a large number has hundreds of digits.
            _ => self.json(format!("{value:?}").len()),
        })
    }

    fn visit_str<E>(self, text: &str) -> Result<Piece, E> {
        let piece = match self.role {
            Role::Json => return Ok(self.json(text.len() + 2)),
            Role::Prompt | Role::Message | Role::Text | Role::Element => {
                self.prompt.text(text.len() as u64);
                Piece::default()
            }
            Role::Type => Piece::typed(text),
            Role::Format => Piece::formatted(text),
            Role::Detail => Piece::detailed(text),
            Role::Data(kind) => Piece::data(text, kind),
            Role::Reference(kind) => Piece::reference(text, kind),
            Role::Thinking => {
                self.prompt.thinking = self.prompt.thinking.max(effort(text));
                Piece::default()
            }
            Role::Kept => {
                self.prompt.kept |= !text.is_empty();
                Piece::default()
            }
            Role::Settings | Role::MaxTokens | Role::Answers | Role::Ignored => Piece::default(),
        };
        Ok(piece)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Piece, A::Error> {
        let Walk { prompt, role } = self;
        let role_of_each = match role {
            Role::Prompt => Role::Message,
            Role::Json | Role::Data(_) | Role::Settings => role,
            Role::MaxTokens | Role::Answers | Role::Thinking | Role::Kept => Role::Ignored,
            _ => Role::Element,
        };
        if role == Role::Json {
            prompt.text(2);
        }
        while let Some(piece) = seq.next_element_seed(Walk { prompt, role: role_of_each })? {
            // The comma.
            if role == Role::Json {
                prompt.text(1);
            }
            piece.settle(prompt);
        }
        Ok(Piece::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Piece, A::Error> {
        let Walk { prompt, role } = self;
        match role {
            Role::Message => prompt.message(),
            Role::Json => prompt.text(2),
            // A conversation is given by its id, or by an object with it.
            Role::Kept => prompt.kept = true,
            _ => {}
        }
        let mut whole = Piece::default();
        while let Some((of_value, length)) = map.next_key_seed(Key(role))? {
            if role == Role::Json {
                // Quotes, colon and comma.
                prompt.text(length as u64 + 4);
            }
            let piece = map.next_value_seed(Walk { prompt, role: of_value })?;
            whole.join(piece);
        }
        if let Role::Data(kind) | Role::Reference(kind) = role {
            whole.stands_under(kind);
        }
        Ok(whole.settle_if_known(prompt))
    }
}

/// Reads a key of an object with this role. Returns the role of its value and the length of the
/// key.
struct Key(Role);

impl<'de> DeserializeSeed<'de> for Key {
    type Value = (Role, usize);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Key {
    type Value = (Role, usize);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok((self.0.inside(key), key.len()))
    }
}
