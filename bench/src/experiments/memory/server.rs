//! The upstream: answers every request with the head of an event stream and a few events, and then holds it open.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::Fallible;

/// How many events come before the silence.
pub(super) const EVENTS: usize = 3;

const EVENT: &str = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"small\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word\"}}]}\n\n";

/// Says where it listens, and serves until its input ends.
pub(crate) fn serve() -> Fallible<String> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("http://{}", listener.local_addr()?);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream));
            }
        });
        tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())).await??;
        Ok(String::new())
    })
}

async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut request = Vec::new();
    // The body is one JSON object, and the last thing sent.
    while !request.ends_with(b"}") {
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    stream
        .write_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
        )
        .await?;
    for _ in 0..EVENTS {
        stream.write_all(format!("{:x}\r\n{EVENT}\r\n", EVENT.len()).as_bytes()).await?;
        // Events come one at a time, as tokens do.
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    // Until the client closes.
    while stream.read(&mut [0; 16]).await? > 0 {}
    Ok(())
}
