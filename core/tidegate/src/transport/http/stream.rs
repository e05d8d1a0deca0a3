//! The byte stream under a connection: a socket, or TLS over a stream.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// A byte stream to a server. TLS may be nested: to a proxy, and through its tunnel to the server.
#[derive(Debug)]
pub(super) enum Stream {
    /// A socket.
    Tcp(TcpStream),
    /// TLS over another stream.
    Tls(Box<TlsStream<Stream>>),
}

impl Stream {
    /// Returns `true` if the server has neither closed the stream nor sent something unasked.
    ///
    /// Asks the socket itself: the runtime learns of a close only when it next polls for events.
    /// Over TLS, session tickets are read first. A stream with bytes that the runtime does not read
    /// now, such as the end of TLS, does not count as open.
    pub(super) fn is_open_and_silent(&mut self) -> bool {
        if let Self::Tls(stream) = self {
            let mut byte = [0; 1];
            let mut unasked = ReadBuf::new(&mut byte);
            let mut cx = Context::from_waker(Waker::noop());
            if Pin::new(&mut **stream).poll_read(&mut cx, &mut unasked).is_ready() {
                return false;
            }
        }
        matches!(peek(self.socket()), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Returns the socket under this stream.
    fn socket(&self) -> &TcpStream {
        match self {
            Self::Tcp(socket) => socket,
            Self::Tls(stream) => stream.get_ref().0.socket(),
        }
    }
}

/// Returns the number of bytes, at most 1, that a read would return now, and leaves them there.
fn peek(socket: &TcpStream) -> io::Result<usize> {
    SockRef::from(socket).peek(&mut [MaybeUninit::uninit()])
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
        }
    }
}
