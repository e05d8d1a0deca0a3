//! Tests of HTTP/2 connections that several calls share, against servers that are scripted frame by
//! frame on loopback.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http::Request;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tidegate::config::TransportConfig;
use tidegate::{ErrorKind, RequestBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::connections::{call, frame, get, http2, serve, text, transport};

// The types of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

// The flags of frames.
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

// Error codes.
const NO_ERROR: u32 = 0;
const REFUSED_STREAM: u32 = 7;

/// The field `:status: 200` of the static table.
const STATUS_200: &[u8] = &[0x88];

/// Begins a connection: reads the preface, and sends settings without a limit of streams.
async fn begin(socket: &mut TcpStream) {
    socket.read_exact(&mut [0; 24]).await.unwrap();
    let settings = [frame(SETTINGS, 0, 0, &[]), frame(SETTINGS, ACK, 0, &[])];
    socket.write_all(&settings.concat()).await.unwrap();
}

/// Reads a frame. Returns its type, its stream and the length of its payload, or `None` at the end
/// of the connection.
async fn read_frame(socket: &mut TcpStream) -> Option<(u8, u32, usize)> {
    let mut head = [0; 9];
    socket.read_exact(&mut head).await.ok()?;
    let [a, b, c, kind, _, stream @ ..] = head;
    let mut payload = vec![0u8; u32::from_be_bytes([0, a, b, c]).try_into().unwrap()];
    socket.read_exact(&mut payload).await.ok()?;
    Some((kind, u32::from_be_bytes(stream), payload.len()))
}

/// Reads up to the head of the next request. Returns its stream, or `None` at the end of the
/// connection.
async fn next_request(socket: &mut TcpStream) -> Option<u32> {
    loop {
        if let (HEADERS, stream, _) = read_frame(socket).await? {
            return Some(stream);
        }
    }
}

/// Returns a response whose body is sent in `frames` frames of 20 bytes.
fn answer(stream: u32, frames: usize) -> Vec<u8> {
    let mut answer = frame(HEADERS, END_HEADERS, stream, STATUS_200);
    for _ in 1..frames {
        answer.extend(frame(DATA, 0, stream, &[b'a'; 20]));
    }
    answer.extend(frame(DATA, END_STREAM, stream, &[b'a'; 20]));
    answer
}

#[tokio::test]
async fn unread_http2_body_of_small_frames_does_not_end_the_connection() {
    const FRAMES: usize = 10_000;
    let address = serve(|mut socket, _| async move {
        begin(&mut socket).await;
        while let Some(stream) = next_request(&mut socket).await {
            let frames = if stream == 1 { FRAMES } else { 1 };
            socket.write_all(&answer(stream, frames)).await.unwrap();
        }
    })
    .await;
    let http = transport(TransportConfig { http2_streams: 4, ..http2() });
    let unread = call(&http, get(address)).await.unwrap();
    assert_eq!(text(&http, address).await.unwrap().len(), 20, "on the same connection");
    assert_eq!(unread.into_body().collect().await.unwrap().to_bytes().len(), 20 * FRAMES);
}

/// The server sends more for each cancelled call, as a server does until the reset arrives.
#[tokio::test]
async fn late_frames_of_cancelled_http2_calls_do_not_end_the_connection() {
    const CANCELLED: usize = 1_200;
    let address = serve(|mut socket, _| async move {
        begin(&mut socket).await;
        let mut resets = Vec::new();
        while let Some((kind, stream, _)) = read_frame(&mut socket).await {
            match kind {
                HEADERS => {
                    socket.write_all(&frame(HEADERS, END_HEADERS, stream, STATUS_200)).await.unwrap();
                }
                RST_STREAM => resets.push(stream),
                _ => {}
            }
            if kind == RST_STREAM && resets.len() == CANCELLED {
                let mut late: Vec<u8> =
                    resets.iter().flat_map(|&stream| frame(DATA, 0, stream, b"x")).collect();
                late.extend(frame(DATA, END_STREAM, 1, b"whole"));
                socket.write_all(&late).await.unwrap();
            }
        }
    })
    .await;
    let http = transport(http2());
    let other = call(&http, get(address)).await.unwrap();
    for _ in 0..CANCELLED {
        drop(call(&http, get(address)).await.unwrap());
    }
    assert_eq!(other.into_body().collect().await.unwrap().to_bytes(), "whole");
}

/// The server allows one stream at a time, answers the upload when its window is used up, and never
/// enlarges the window.
#[tokio::test]
async fn http2_upload_that_flow_control_holds_up_is_reset_with_its_response() {
    const WINDOW: usize = 65_535;
    for reads_response in [false, true] {
        let (reset, mut was_reset) = mpsc::unbounded_channel();
        let address = serve(move |mut socket, number| {
            let reset = reset.clone();
            async move {
                assert_eq!(number, 0, "one connection");
                begin(&mut socket).await;
                let one_stream = [&[0, 3], &1u32.to_be_bytes()[..]].concat();
                socket.write_all(&frame(SETTINGS, 0, 0, &one_stream)).await.unwrap();
                let mut received = 0;
                while let Some((kind, stream, length)) = read_frame(&mut socket).await {
                    match (kind, stream) {
                        (DATA, 1) => {
                            received += length;
                            if received == WINDOW {
                                socket.write_all(&answer(1, 1)).await.unwrap();
                            }
                        }
                        (RST_STREAM, stream) => reset.send(stream).unwrap(),
                        (HEADERS, 3..) => socket.write_all(&answer(stream, 1)).await.unwrap(),
                        _ => {}
                    }
                }
            }
        })
        .await;
        let http = transport(http2());
        let chunk = || Ok(Frame::data(Bytes::from_static(&[b'x'; 10_000])));
        let body = RequestBody::stream(StreamBody::new(futures_util::stream::repeat_with(chunk).take(100)));
        let request = Request::post(format!("http://{address}/v1/files")).body(body).unwrap();
        let response = call(&http, request).await.unwrap();
        let mut body = Some(response.into_body());
        if reads_response && let Some(body) = &mut body {
            while body.frame().await.transpose().unwrap().is_some() {}
        } else {
            body = None;
        }
        let within = Duration::from_secs(10);
        let reset = tokio::time::timeout(within, was_reset.recv()).await.expect("a reset");
        assert_eq!(reset, Some(1), "reads_response: {reads_response}");
        assert_eq!(text(&http, address).await.unwrap().len(), 20, "on the same connection");
        drop(body);
    }
}

/// Refuses a stream without closing the connection.
fn refusal(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &REFUSED_STREAM.to_be_bytes())
}

/// Closes the connection. Stream 1 is the last that is processed.
fn shutdown(_: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[1u32.to_be_bytes(), NO_ERROR.to_be_bytes()].concat())
}

#[tokio::test]
async fn http2_request_that_the_server_did_not_process_is_sent_again() {
    let rejections: [fn(u32) -> Vec<u8>; 2] = [refusal, shutdown];
    for rejection in rejections {
        let address = serve(move |mut socket, number| async move {
            begin(&mut socket).await;
            while let Some(stream) = next_request(&mut socket).await {
                let reply = if (number, stream) == (0, 3) { rejection(stream) } else { answer(stream, 1) };
                socket.write_all(&reply).await.unwrap();
            }
        })
        .await;
        let http = transport(http2());
        assert_eq!(text(&http, address).await.unwrap().len(), 20);
        let body = RequestBody::from("{}");
        let request = Request::post(format!("http://{address}/v1/files")).body(body).unwrap();
        let response = call(&http, request).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes().len(), 20);
    }
}

#[tokio::test]
async fn http2_request_that_is_refused_again_and_again_fails() {
    let received = Arc::new(AtomicUsize::new(0));
    let counted = received.clone();
    let address = serve(move |mut socket, _| {
        let counted = counted.clone();
        async move {
            begin(&mut socket).await;
            while let Some(stream) = next_request(&mut socket).await {
                counted.fetch_add(1, Ordering::Relaxed);
                socket.write_all(&refusal(stream)).await.unwrap();
            }
        }
    })
    .await;
    let error = text(&transport(http2()), address).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Transport, "{error}");
    assert_eq!(received.load(Ordering::Relaxed), 3);
}
