//! Decodes the bodies of HTTP/1.1 responses: of a known length, chunked, or up to the end of the
//! connection (RFC 9112, sections 6.3 and 7.1).

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use httparse::Status;

use super::super::errors;
use crate::error::Error;

/// The maximum length in bytes of a line with the size of a chunk, and of the trailers.
const MAX_CHUNK_LINE: usize = 16 * 1024;

/// The maximum number of trailer fields.
const MAX_TRAILERS: usize = 64;

/// What follows the data of the last chunk that is not empty, if there are no trailers.
const END_OF_CHUNKS: &[u8] = b"\r\n0\r\n\r\n";

/// Decodes a body from the bytes of its connection.
#[derive(Debug)]
pub(super) struct BodyDecoder(State);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// This many bytes are left.
    Length(u64),
    /// The body ends with the connection.
    UntilClose,
    /// The size of a chunk follows.
    ChunkSize,
    /// This many bytes of a chunk are left.
    ChunkData(u64),
    /// The line break after a chunk follows.
    ChunkEnd,
    /// The trailers follow, which an empty line ends.
    Trailers,
    /// The body has ended.
    Ended,
}

/// What the next bytes of a body are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    /// Bytes of the body.
    Data(Bytes),
    /// The trailers, after which the body has ended. Not empty.
    Trailers(HeaderMap),
    /// The body has ended.
    End,
    /// More bytes have to be received.
    Incomplete,
}

impl BodyDecoder {
    /// Creates a decoder of a body without bytes.
    pub(super) fn empty() -> Self {
        Self(State::Ended)
    }

    /// Creates a decoder of a body of `length` bytes.
    pub(super) fn of_length(length: u64) -> Self {
        Self(if length == 0 { State::Ended } else { State::Length(length) })
    }

    /// Creates a decoder of a chunked body.
    pub(super) fn chunked() -> Self {
        Self(State::ChunkSize)
    }

    /// Creates a decoder of a body that ends with the connection.
    pub(super) fn until_close() -> Self {
        Self(State::UntilClose)
    }

    /// Returns `true` if the body has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.0 == State::Ended
    }

    /// Returns `true` if the end of the connection ends the body too.
    pub(super) fn ends_with_connection(&self) -> bool {
        self.0 == State::UntilClose
    }

    /// Returns the number of bytes left, if it is known.
    pub(super) fn remaining(&self) -> Option<u64> {
        match self.0 {
            State::Length(length) => Some(length),
            State::Ended => Some(0),
            _ => None,
        }
    }

    /// Takes the whole body from the front of `input`, if it is one piece without trailers and all
    /// of it has been received. Otherwise returns `None`, and takes nothing.
    pub(super) fn take_whole(&mut self, input: &mut BytesMut) -> Option<Bytes> {
        let (start, length, end) = match self.0 {
            State::Ended => (0, 0, &b""[..]),
            State::Length(length) => (0, length, &b""[..]),
            State::ChunkSize if input.first().is_some_and(u8::is_ascii_hexdigit) => {
                match httparse::parse_chunk_size(input) {
                    Ok(Status::Complete((start, length @ 1..))) => (start, length, END_OF_CHUNKS),
                    _ => return None,
                }
            }
            _ => return None,
        };
        let rest = input.get(start..)?;
        let length = usize::try_from(length).ok().filter(|length| *length <= rest.len())?;
        if !rest.get(length..)?.starts_with(end) {
            return None;
        }
        input.advance(start);
        let body = input.split_to(length).freeze();
        input.advance(end.len());
        self.0 = State::Ended;
        Some(body)
    }

    /// Takes the next part of the body from the front of `input`. If the end follows the data in
    /// `input`, the decoder has ended afterwards.
    ///
    /// # Errors
    /// `Transport` if the chunks are malformed.
    pub(super) fn decode(&mut self, input: &mut BytesMut) -> Result<Decoded, Error> {
        let decoded = self.step(input)?;
        if matches!(decoded, Decoded::Data(_)) && self.0 == State::ChunkEnd {
            self.skip_end_of_chunks(input);
        }
        Ok(decoded)
    }

    fn step(&mut self, input: &mut BytesMut) -> Result<Decoded, Error> {
        loop {
            self.0 = match self.0 {
                State::Ended => return Ok(Decoded::End),
                _ if input.is_empty() => return Ok(Decoded::Incomplete),
                State::UntilClose => return Ok(Decoded::Data(input.split().freeze())),
                State::Length(left) => {
                    let (data, left) = take_up_to(input, left);
                    self.0 = if left == 0 { State::Ended } else { State::Length(left) };
                    return Ok(Decoded::Data(data));
                }
                State::ChunkData(left) => {
                    let (data, left) = take_up_to(input, left);
                    self.0 = if left == 0 { State::ChunkEnd } else { State::ChunkData(left) };
                    return Ok(Decoded::Data(data));
                }
                State::ChunkSize => match take_chunk_size(input)? {
                    None => return Ok(Decoded::Incomplete),
                    Some(0) => State::Trailers,
                    Some(size) => State::ChunkData(size),
                },
                State::ChunkEnd => match input.get(..2) {
                    None => return Ok(Decoded::Incomplete),
                    Some(b"\r\n") => {
                        input.advance(2);
                        State::ChunkSize
                    }
                    Some(_) => return Err(errors::malformed("a chunk is longer than its size")),
                },
                State::Trailers => {
                    let Some(trailers) = take_trailers(input)? else { return Ok(Decoded::Incomplete) };
                    self.0 = State::Ended;
                    return Ok(if trailers.is_empty() { Decoded::End } else { Decoded::Trailers(trailers) });
                }
            };
        }
    }

    /// Ends the body if only the last chunk, without trailers, is left and received. So the reader
    /// of a complete answer learns with the data that nothing follows.
    fn skip_end_of_chunks(&mut self, input: &mut BytesMut) {
        if input.starts_with(END_OF_CHUNKS) {
            input.advance(END_OF_CHUNKS.len());
            self.0 = State::Ended;
        }
    }
}

/// Takes at most `most` bytes from the front of `input`. Returns them, and how many are missing.
fn take_up_to(input: &mut BytesMut, most: u64) -> (Bytes, u64) {
    let taken = usize::try_from(most).unwrap_or(usize::MAX).min(input.len());
    (input.split_to(taken).freeze(), most - taken as u64)
}

/// Takes the line with the size of a chunk. Returns `None` if it is not complete.
fn take_chunk_size(input: &mut BytesMut) -> Result<Option<u64>, Error> {
    // httparse reads an empty line as the size 0.
    if !input.first().is_some_and(u8::is_ascii_hexdigit) {
        return Err(errors::malformed("a chunk has no valid size"));
    }
    match httparse::parse_chunk_size(input) {
        Ok(Status::Complete((length, size))) => {
            input.advance(length);
            Ok(Some(size))
        }
        Ok(Status::Partial) if input.len() < MAX_CHUNK_LINE => Ok(None),
        _ => Err(errors::malformed("a chunk has no valid size")),
    }
}

/// Takes the trailers with the empty line after them. Returns `None` if they are not complete.
fn take_trailers(input: &mut BytesMut) -> Result<Option<HeaderMap>, Error> {
    let malformed = || errors::malformed("the trailers of the response are malformed");
    let mut fields = [httparse::EMPTY_HEADER; MAX_TRAILERS];
    let (length, fields) = match httparse::parse_headers(input, &mut fields) {
        Ok(Status::Complete(parsed)) => parsed,
        Ok(Status::Partial) if input.len() < MAX_CHUNK_LINE => return Ok(None),
        _ => return Err(malformed()),
    };
    let mut trailers = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| malformed())?;
        let value = HeaderValue::from_bytes(field.value).map_err(|_| malformed())?;
        trailers.append(name, value);
    }
    input.advance(length);
    Ok(Some(trailers))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Decodes a body that arrives in these pieces. Returns its bytes and trailers, or `None` if it
    /// did not end.
    fn decode(mut decoder: BodyDecoder, pieces: &[&[u8]]) -> Result<Option<(Vec<u8>, HeaderMap)>, Error> {
        let (mut input, mut body, mut trailers) = (BytesMut::new(), Vec::new(), HeaderMap::new());
        for piece in pieces {
            input.extend_from_slice(piece);
            loop {
                match decoder.decode(&mut input)? {
                    Decoded::Data(data) => body.extend_from_slice(&data),
                    Decoded::Trailers(received) => trailers = received,
                    Decoded::End => return Ok(Some((body, trailers))),
                    Decoded::Incomplete => break,
                }
            }
        }
        Ok(None)
    }

    proptest! {
        #[test]
        fn chunks_are_joined_however_they_arrive(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 0..6),
            has_trailers: bool,
            cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..12),
        ) {
            let mut sent = Vec::new();
            for chunk in &chunks {
                sent.extend_from_slice(format!("{:X};name=\"value\"\r\n", chunk.len()).as_bytes());
                sent.extend_from_slice(chunk);
                sent.extend_from_slice(b"\r\n");
            }
            sent.extend_from_slice(if has_trailers { b"0\r\nusage: 7\r\n\r\n" } else { b"0\r\n\r\n" });
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(sent.len() + 1)).collect();
            cuts.extend([0, sent.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &sent[cut[0]..cut[1]]).collect();
            let (body, trailers) = decode(BodyDecoder::chunked(), &pieces).unwrap().expect("an end");
            prop_assert_eq!(body, chunks.concat());
            prop_assert_eq!(trailers.len(), usize::from(has_trailers));
            // Without the last byte there is no end.
            let cut_off = &sent[..sent.len() - 1];
            prop_assert!(decode(BodyDecoder::chunked(), &[cut_off]).unwrap().is_none());
        }

        #[test]
        fn any_bytes_end_in_a_body_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(BodyDecoder::chunked(), &[&bytes]);
        }
    }

    #[test]
    fn malformed_chunks_are_errors() {
        for body in [
            "x\r\n",
            "-1\r\n",
            "+1\r\na\r\n",
            "0x1\r\na\r\n",
            "1\r\nab\r\n",
            "10000000000000000\r\n",
            "1 1\r\na\r\n",
            "\r\n",
            "0\r\nno colon\r\n\r\n",
        ] {
            assert!(decode(BodyDecoder::chunked(), &[body.as_bytes()]).is_err(), "{body:?}");
        }
        assert!(decode(BodyDecoder::chunked(), &[&[b'1'; MAX_CHUNK_LINE]]).is_err(), "a size without an end");
    }

    #[test]
    fn whole_body_is_taken_only_if_all_of_it_is_there() {
        let chunked = BodyDecoder::chunked;
        for (mut decoder, received, whole, rest) in [
            (BodyDecoder::empty(), "next", Some(""), "next"),
            (BodyDecoder::of_length(2), "okx", Some("ok"), "x"),
            (BodyDecoder::of_length(3), "ok", None, "ok"),
            (chunked(), "2;a=b\r\nok\r\n0\r\n\r\nx", Some("ok"), "x"),
            (chunked(), "2\r\nok\r\n0\r\n\r", None, "2\r\nok\r\n0\r\n\r"),
            (chunked(), "2\r\nok\r\n0\r\nusage: 7\r\n\r\n", None, "2\r\nok\r\n0\r\nusage: 7\r\n\r\n"),
            (chunked(), "1\r\no\r\n1\r\nk\r\n0\r\n\r\n", None, "1\r\no\r\n1\r\nk\r\n0\r\n\r\n"),
            (chunked(), "0\r\n\r\n0\r\n\r\n", None, "0\r\n\r\n0\r\n\r\n"),
            (chunked(), "ffffffffffffffff\r\nok", None, "ffffffffffffffff\r\nok"),
            (chunked(), "", None, ""),
            (BodyDecoder::until_close(), "ok", None, "ok"),
        ] {
            let mut input = BytesMut::from(received);
            assert_eq!(decoder.take_whole(&mut input), whole.map(Bytes::from), "{received:?}");
            assert_eq!((&input[..], whole.is_some()), (rest.as_bytes(), decoder.has_ended()), "{received:?}");
        }
    }

    #[test]
    fn end_is_known_with_the_last_data() {
        for (mut decoder, received) in
            [(BodyDecoder::of_length(2), "ok"), (BodyDecoder::chunked(), "2\r\nok\r\n0\r\n\r\n")]
        {
            let mut input = BytesMut::from(received);
            assert_eq!(decoder.decode(&mut input).unwrap(), Decoded::Data(Bytes::from("ok")));
            assert!(decoder.has_ended() && input.is_empty(), "{received:?}");
        }
    }
}
