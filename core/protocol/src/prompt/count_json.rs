//! Counts a JSON value while it is parsed, without storing its content.

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess};

use super::json_role::{Role, effort};
use super::media_part::{Piece, Source};
use super::{Prompt, media::Media};
use crate::lenient_json::{FromAny, Json, Key, ReadAny, Scalar};

/// A reader that counts one JSON value into `prompt` according to its role.
///
/// Reading returns a [`Piece`]: the properties of a media part that need the enclosing object to be
/// complete, for example a MIME type without data.
struct Walk<'a> {
    prompt: &'a mut Prompt,
    role: Role,
}

impl Prompt {
    /// Counts the next value of `map` into this prompt. `role` is the role of its key.
    pub(crate) fn count<'de, A: MapAccess<'de>>(&mut self, role: Role, map: &mut A) -> Result<(), A::Error> {
        map.next_value_seed(Walk { prompt: self, role })?.settle(self);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = Piece;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Piece, D::Error> {
        if self.role == Role::Ignored {
            return deserializer.deserialize_ignored_any(IgnoredAny).map(|_| Piece::default());
        }
        deserializer.deserialize_any(Json(self))
    }
}

impl<'de> ReadAny<'de> for Walk<'_> {
    type Output = Piece;

    fn scalar(self, scalar: Scalar<'_>) -> Piece {
        let Walk { prompt, role } = self;
        match (role, scalar) {
            (Role::Json, scalar) => prompt.add_text(json_length(scalar)),
            (Role::Thinking, Scalar::Text(word)) => prompt.raise(role, effort(word)),
            (Role::MaxTokens | Role::Answers | Role::Thinking, number) => {
                prompt.raise(role, Option::from_scalar(number));
            }
            (Role::Completion | Role::Message | Role::Element, Scalar::Unsigned(_)) => prompt.token_ids += 1,
            (Role::Completion, Scalar::Text(text)) => {
                prompt.completions += 1;
                prompt.add_text(text.len() as u64);
            }
            (
                Role::Prompt | Role::Completions | Role::Message | Role::Text | Role::Element,
                Scalar::Text(text),
            ) => prompt.add_text(text.len() as u64),
            (Role::StoredContext, Scalar::Text(name)) => prompt.has_stored_context |= !name.is_empty(),
            (Role::Type, Scalar::Text(name)) => {
                // The model reads the result, which is encrypted in the request.
                prompt.has_stored_context |= name == "web_search_result";
                return Piece::stated(Source::Type, Media::of_type(name));
            }
            (Role::Format, Scalar::Text(format)) => return Piece::formatted(format),
            (Role::Detail, Scalar::Text(detail)) => return Piece::detailed(detail),
            (Role::Data(media), Scalar::Text(data)) => return Piece::data(data, media),
            (Role::Reference(media), Scalar::Text(url)) => return Piece::reference(url, media),
            _ => {}
        }
        Piece::default()
    }

    fn array<A: SeqAccess<'de>>(self, mut array: A) -> Result<Piece, A::Error> {
        let Walk { prompt, role } = self;
        let role_of_each = match role {
            Role::Prompt | Role::Message => Role::Message,
            Role::Completions => Role::Completion,
            // The elements of a list of a video are its frames.
            Role::Reference(Some(Media::Video)) => Role::Reference(Some(Media::Image)),
            Role::Json | Role::Data(_) | Role::Reference(_) | Role::Settings | Role::ThinkingSettings => role,
            Role::MaxTokens | Role::Answers | Role::Thinking | Role::StoredContext => Role::Ignored,
            _ => Role::Element,
        };
        match role {
            Role::Json => prompt.add_text(2),
            Role::Completion => prompt.completions += 1,
            _ => {}
        }
        let messages = prompt.messages;
        while let Some(piece) = array.next_element_seed(Walk { prompt, role: role_of_each })? {
            // The comma after the element.
            if role == Role::Json {
                prompt.add_text(1);
            }
            piece.settle(prompt);
        }
        if role == Role::Message && prompt.messages > messages {
            prompt.completions += 1;
        }
        Ok(Piece::default())
    }

    fn object<A: MapAccess<'de>>(self, mut object: A) -> Result<Piece, A::Error> {
        let Walk { prompt, role } = self;
        match role {
            Role::Message => prompt.messages += 1,
            Role::Completion => prompt.completions += 1,
            Role::Json => prompt.add_text(2),
            // A conversation is given by its id, or by an object with it.
            Role::StoredContext => prompt.has_stored_context = true,
            _ => {}
        }
        let mut whole = Piece::default();
        while let Some(Key(key)) = object.next_key()? {
            if role == Role::Json {
                // The quotes, colon and comma of the member.
                prompt.add_text(key.len() as u64 + 4);
            }
            whole.join(object.next_value_seed(Walk { prompt, role: role.inside(&key) })?);
        }
        if let Role::Data(media) | Role::Reference(media) = role {
            whole.join(Piece::under_key(media));
        }
        Ok(whole.settle_if_known(prompt))
    }
}

/// Returns the length in bytes of a scalar written as JSON. Escapes in strings are not counted.
fn json_length(scalar: Scalar<'_>) -> u64 {
    let digits = |number: u64| u64::from(number.checked_ilog10().unwrap_or(0)) + 1;
    match scalar {
        Scalar::Null | Scalar::Bool(true) => 4,
        Scalar::Bool(false) => 5,
        Scalar::Unsigned(value) => digits(value),
        Scalar::Negative(value) => 1 + digits(value.unsigned_abs()),
        // The debug format writes large numbers with an exponent, as JSON does. Without one, they
        // would have hundreds of digits.
        Scalar::Float(value) => format!("{value:?}").len() as u64,
        Scalar::Text(text) => text.len() as u64 + 2,
    }
}
