//! Sends one chat completion through a gate and streams the answer.
//!
//! Run it with `OPENAI_API_KEY=... cargo run -p tidegate --example chat`. `OPENAI_BASE_URL` selects
//! another server.

use std::time::Duration;

use http_body_util::BodyExt;
use tidegate::config::Target;
use tidegate::{Context, Gate};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let base = std::env::var("OPENAI_BASE_URL").unwrap_or_else(|_| "https://api.openai.com/v1".to_owned());
    let key = std::env::var("OPENAI_API_KEY")?;

    let gate = Gate::builder()
        .target(Target::new("openai").url(&base).cap(8).wait(Duration::from_secs(30)))
        .build()?;

    let question = serde_json::json!({
        "model": "gpt-4o-mini",
        "messages": [{"role": "user", "content": "What does a tide gate do?"}],
        "max_completion_tokens": 16,
        "stream": true,
    });
    let request = http::Request::post(format!("{base}/chat/completions"))
        .header("authorization", format!("Bearer {key}"))
        .header("content-type", "application/json")
        .extension(Context { tenant: Some("docs".into()), ..Context::default() })
        .body(question.to_string().into_bytes().into())?;

    let response = gate.client().call(request).await?;
    let status = response.status();
    println!("{status}");
    let mut body = response.into_body();
    // The slot is held until the body ends or is dropped, which is here.
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            print!("{}", String::from_utf8_lossy(&data));
        }
    }
    if status.is_success() { Ok(()) } else { Err(format!("the call failed: {status}").into()) }
}
