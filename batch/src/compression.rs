//! Compressed files, recognized by their extension.
//!
//! A compressed file is written as a series of *pieces*: gzip members or zstd frames, each with
//! complete lines. Any decompressor can read such a file as a whole, and a crash can leave only the
//! last piece incomplete.

use std::io::{self, BufRead, Read, Write};
use std::path::Path;

use flate2::Compression as GzipLevel;
use flate2::bufread::{GzDecoder, MultiGzDecoder};
use flate2::write::GzEncoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

/// How a file is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not compressed.
    #[default]
    Plain,
    /// Gzip, with the extension `.gz`.
    Gzip,
    /// Zstandard, with the extension `.zst`.
    Zstd,
}

impl Compression {
    /// Returns the compression that the extension of a file name indicates, whether in upper or
    /// lower case. Any extension other than `.gz` and `.zst` means [`Compression::Plain`].
    pub fn from_path(path: &Path) -> Self {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some(extension) if extension.eq_ignore_ascii_case("gz") => Self::Gzip,
            Some(extension) if extension.eq_ignore_ascii_case("zst") => Self::Zstd,
            _ => Self::Plain,
        }
    }

    /// Returns a reader of the decompressed text of a whole file.
    pub fn reader<'a>(self, file: impl BufRead + Send + 'a) -> Box<dyn Read + Send + 'a> {
        match self {
            Self::Plain => Box::new(file),
            Self::Gzip => Box::new(MultiGzDecoder::new(file)),
            Self::Zstd => Box::new(ZstdFrames::new(file)),
        }
    }

    /// Returns `text` compressed as one piece, or unchanged for [`Compression::Plain`].
    ///
    /// # Errors
    ///
    /// Returns an error if the encoder does, which it never does in practice because it writes to
    /// memory.
    pub(crate) fn compress_piece(self, text: Vec<u8>) -> io::Result<Vec<u8>> {
        match self {
            Self::Plain => Ok(text),
            Self::Gzip => {
                let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 4), GzipLevel::default());
                encoder.write_all(&text)?;
                encoder.finish()
            }
            Self::Zstd => Ok(compress_to_vec(&text[..], CompressionLevel::Fastest)),
        }
    }

    /// Returns `true` if `head`, the first bytes of a piece, may be the start of a piece in this
    /// format. Only the bytes before the first zero are compared, because a power failure may leave
    /// zeros.
    pub(crate) fn may_start_with(self, head: &[u8]) -> bool {
        let magic: &[u8] = match self {
            Self::Plain => &[],
            Self::Gzip => &[0x1f, 0x8b],
            Self::Zstd => &[0x28, 0xb5, 0x2f, 0xfd],
        };
        head.iter().zip(magic).take_while(|(is, _)| **is != 0).all(|(is, should)| is == should)
    }

    /// Reads and decompresses the next piece of a file, up to `max_bytes` of text, and reads
    /// nothing beyond the piece. Returns `None` at the end of the file.
    ///
    /// # Errors
    ///
    /// Returns an error if the piece is incomplete or damaged. The zstd frames of earlier versions
    /// have no checksum, so damage may remain unnoticed in them.
    pub(crate) fn next_piece(self, file: &mut impl BufRead, max_bytes: u64) -> io::Result<Option<Vec<u8>>> {
        if file.fill_buf()?.is_empty() {
            return Ok(None);
        }
        let mut text = Vec::new();
        match self {
            Self::Plain => file.take(max_bytes).read_to_end(&mut text)?,
            Self::Gzip => GzDecoder::new(&mut *file).take(max_bytes).read_to_end(&mut text)?,
            Self::Zstd => {
                let mut frame = ZstdFrames::new(file);
                frame.single = true;
                frame.take(max_bytes).read_to_end(&mut text)?
            }
        };
        Ok(Some(text))
    }
}

/// A reader that decompresses consecutive zstd frames and skips skippable frames. [`FrameDecoder`]
/// itself reads only a single frame.
struct ZstdFrames<R> {
    file: R,
    decoder: FrameDecoder,
    inside: bool,
    /// Whether to end after the first frame.
    single: bool,
}

impl<R: BufRead> ZstdFrames<R> {
    fn new(file: R) -> Self {
        Self { file, decoder: FrameDecoder::new(), inside: false, single: false }
    }

    /// Starts to decode the next frame. Returns `false` at the end of the file.
    fn start_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.file.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.file) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    let skipped = io::copy(&mut (&mut self.file).take(length), &mut io::sink())?;
                    if skipped < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.inside {
                if !self.start_frame()? {
                    return Ok(0);
                }
                self.inside = true;
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let one_block = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.file, one_block).map_err(io::Error::other)?;
            }
            let read = self.decoder.read(into)?;
            if read > 0 || into.is_empty() {
                return Ok(read);
            }
            let checksum = self.decoder.get_checksum_from_data();
            if checksum.is_some() && checksum != self.decoder.get_calculated_checksum() {
                let text = "a zstd frame does not match its checksum, so the file is damaged";
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            if self.single {
                return Ok(0);
            }
            self.inside = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    #[test]
    fn pieces_read_as_one_text_and_a_torn_piece_is_an_error() {
        for format in [Compression::Gzip, Compression::Zstd] {
            let texts = ["first\n".repeat(50_000), String::new(), "last\n".to_owned()];
            let pieces = texts.clone().map(|text| format.compress_piece(text.into()).unwrap());
            let file = pieces.concat();
            let mut read = String::new();
            format.reader(&file[..]).read_to_string(&mut read).unwrap();
            assert_eq!(read, texts.concat(), "{format:?}");

            let mut rest = BufReader::with_capacity(7, &file[..file.len() - 1]);
            for text in &texts[..2] {
                assert_eq!(format.next_piece(&mut rest, u64::MAX).unwrap().unwrap(), text.as_bytes());
            }
            assert!(format.next_piece(&mut rest, u64::MAX).is_err(), "{format:?}");
            assert!(format.next_piece(&mut &b""[..], u64::MAX).unwrap().is_none());
        }
    }

    #[test]
    fn damaged_text_in_a_zstd_frame_is_an_error() {
        let mut file = Compression::Zstd.compress_piece(b"some text".to_vec()).unwrap();
        let position = memchr::memmem::find(&file, b"text").unwrap();
        file[position] = b'n';
        let error = Compression::Zstd.reader(&file[..]).read_to_string(&mut String::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains("does not match its checksum"), "{error}");
        assert!(Compression::Zstd.next_piece(&mut &file[..], u64::MAX).is_err());
    }

    #[test]
    fn skippable_frames_are_skipped() {
        let skipped = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        let file = [skipped, Compression::Zstd.compress_piece(b"text".to_vec()).unwrap()].concat();
        let mut read = String::new();
        Compression::Zstd.reader(&file[..]).read_to_string(&mut read).unwrap();
        assert_eq!(read, "text");
        assert!(Compression::Zstd.reader(&file[..5]).read_to_string(&mut read).is_err());
    }

    #[test]
    fn compression_follows_the_file_extension() {
        for (name, format) in
            [("a.jsonl", Compression::Plain), ("a.jsonl.gz", Compression::Gzip), ("A.ZST", Compression::Zstd)]
        {
            assert_eq!(Compression::from_path(Path::new(name)), format);
        }
    }
}
