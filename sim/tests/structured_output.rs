//! Tests of tool calls and structured outputs as clients read them, in virtual time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod support;

use serde_json::{Value, json};
use support::{events, post, simulator, text, value};
use tidegate_sim::Simulator;
use tokio::time::{Duration, Instant};

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";
const GEMINI: &str = "/v1beta/models/sim:generateContent";
const GEMINI_STREAM: &str = "/v1beta/models/sim:streamGenerateContent?alt=sse";
/// JSON of the only value that the tests expect: 41 bytes, or 11 tokens.
const CITY: &str = r#"{"city":"København","days":1,"hot":true}"#;

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {"city": {"enum": ["København"]}, "days": {"type": "integer"}, "hot": {"type": "boolean"}},
        "required": ["city", "days", "hot"], "additionalProperties": false,
    })
}

/// Returns a request body of an API, with `extra` keys.
fn body(path: &str, extra: Value) -> Value {
    let user = json!([{"role": "user", "content": "hi"}]);
    let mut body = match path {
        RESPONSES => json!({"model": "sim", "input": user}),
        GEMINI | GEMINI_STREAM => json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}),
        _ => json!({"model": "sim", "messages": user, "max_tokens": 100}),
    };
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

/// Returns a tool with the name, in the form of an API.
fn tool(path: &str, name: &str) -> Value {
    match path {
        CHAT => json!({"type": "function", "function": {"name": name, "parameters": schema()}}),
        RESPONSES => json!({"type": "function", "name": name, "parameters": schema()}),
        MESSAGES => json!({"name": name, "input_schema": schema()}),
        _ => json!({"functionDeclarations": [{"name": name, "parametersJsonSchema": schema()}]}),
    }
}

async fn answer(sim: &Simulator, path: &str, body: &Value) -> Value {
    let response = sim.respond(post(path, body)).await.unwrap();
    let status = response.status();
    let answer = value(response).await;
    assert_eq!(status, 200, "{answer}");
    answer
}

async fn stream(sim: &Simulator, path: &str, mut body: Value) -> Vec<Value> {
    if path != GEMINI_STREAM {
        body["stream"] = json!(true);
    }
    events(&text(sim.respond(post(path, &body)).await.unwrap()).await)
}

async fn error(sim: &Simulator, path: &str, extra: Value) -> String {
    let response = sim.respond(post(path, &body(path, extra))).await.unwrap();
    assert_eq!(response.status(), 400);
    value(response).await["error"]["message"].as_str().unwrap().to_owned()
}

/// Concatenates the strings at a JSON pointer of the events that have one.
fn joined(events: &[Value], pointer: &str) -> String {
    events.iter().filter_map(|event| event.pointer(pointer)?.as_str()).collect()
}

fn city() -> Value {
    serde_json::from_str(CITY).unwrap()
}

#[tokio::test(start_paused = true)]
async fn chat_calls_a_forced_tool() {
    let sim = simulator(|_| ());
    let named = json!({"type": "function", "function": {"name": "weather"}});
    let allowed = json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named]}});
    for choice in [json!("required"), named, allowed] {
        let request = body(CHAT, json!({"tools": [tool(CHAT, "weather")], "tool_choice": choice}));
        let whole = answer(&sim, CHAT, &request).await;
        let choice = &whole["choices"][0];
        assert_eq!(choice["finish_reason"], "tool_calls");
        assert_eq!(choice["message"]["content"], Value::Null);
        let call = &choice["message"]["tool_calls"][0];
        assert_eq!(call["function"], json!({"name": "weather", "arguments": CITY}));
        assert!(call["id"].as_str().unwrap().starts_with("call_"));
        assert_eq!(whole["usage"]["completion_tokens"], 11);
    }
    let request = json!({
        "tools": [tool(CHAT, "weather")], "tool_choice": "required", "stream_options": {"include_usage": true},
    });
    let events = stream(&sim, CHAT, body(CHAT, request)).await;
    let call = "/choices/0/delta/tool_calls/0";
    assert_eq!(joined(&events, &format!("{call}/function/name")), "weather");
    assert_eq!(joined(&events, &format!("{call}/function/arguments")), CITY);
    assert!(events.iter().filter_map(|event| event.pointer(call)).all(|call| call["index"] == 0));
    assert_eq!(joined(&events, "/choices/0/finish_reason"), "tool_calls");
    assert_eq!(events[events.len() - 2]["usage"]["completion_tokens"], 11);
    assert_eq!(events.len(), 1 + 11 + 3, "role, one event per token, finish, usage and end");
}

#[tokio::test(start_paused = true)]
async fn responses_call_a_forced_tool() {
    let sim = simulator(|_| ());
    for choice in [json!("required"), json!({"type": "function", "name": "weather"})] {
        let request = body(RESPONSES, json!({"tools": [tool(RESPONSES, "weather")], "tool_choice": choice}));
        let whole = answer(&sim, RESPONSES, &request).await;
        let item = &whole["output"][0];
        assert_eq!(
            (&item["type"], &item["name"], &item["arguments"]),
            (&json!("function_call"), &json!("weather"), &json!(CITY))
        );
        assert_eq!(whole["usage"]["output_tokens"], 11);
        let events = stream(&sim, RESPONSES, request).await;
        let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
        assert_eq!(kinds[2], "response.output_item.added");
        assert_eq!(kinds[3..14], ["response.function_call_arguments.delta"; 11]);
        let last =
            ["response.function_call_arguments.done", "response.output_item.done", "response.completed"];
        assert_eq!(kinds[14..], last);
        assert_eq!(joined(&events, "/delta"), CITY);
        assert_eq!(events[14]["arguments"], CITY);
        assert_eq!(events[2]["item"]["call_id"], events[15]["item"]["call_id"]);
        assert_eq!(events[16]["response"]["output"][0]["arguments"], CITY);
    }
}

#[tokio::test(start_paused = true)]
async fn messages_call_a_forced_tool() {
    let sim = simulator(|_| ());
    for choice in [json!({"type": "any"}), json!({"type": "tool", "name": "weather"})] {
        let request = body(MESSAGES, json!({"tools": [tool(MESSAGES, "weather")], "tool_choice": choice}));
        let whole = answer(&sim, MESSAGES, &request).await;
        let block = &whole["content"][0];
        assert_eq!(
            (&block["type"], &block["name"], &block["input"]),
            (&json!("tool_use"), &json!("weather"), &city())
        );
        assert_eq!(
            (&whole["stop_reason"], &whole["usage"]["output_tokens"]),
            (&json!("tool_use"), &json!(11))
        );
        let events = stream(&sim, MESSAGES, request).await;
        assert_eq!(events[1]["content_block"]["name"], "weather");
        assert_eq!(events[1]["content_block"]["input"], json!({}));
        assert_eq!(joined(&events, "/delta/partial_json"), CITY);
        assert_eq!(joined(&events, "/delta/stop_reason"), "tool_use");
        assert_eq!(events[events.len() - 2]["usage"]["output_tokens"], 11);
    }
}

#[tokio::test(start_paused = true)]
async fn gemini_calls_a_forced_tool() {
    let sim = simulator(|_| ());
    let config = json!({"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["weather"]}});
    let snake = json!({"functionDeclarations": [{"name": "weather", "parameters_json_schema": schema()}]});
    let tools = json!([tool(GEMINI, "other"), snake]);
    let request = body(GEMINI, json!({"tools": tools, "toolConfig": config}));
    let whole = answer(&sim, GEMINI, &request).await;
    let call = &whole["candidates"][0]["content"]["parts"][0]["functionCall"];
    assert_eq!((&call["name"], &call["args"]), (&json!("weather"), &city()));
    assert_eq!(whole["candidates"][0]["finishReason"], "STOP");
    assert_eq!(whole["usageMetadata"]["candidatesTokenCount"], 11);
    let events = stream(&sim, GEMINI_STREAM, request.clone()).await;
    assert_eq!(events.len(), 1, "a call is one event");
    assert_eq!(events[0]["candidates"][0]["content"]["parts"][0]["functionCall"]["args"], city());
    let list = answer(&sim, "/v1beta/models/sim:streamGenerateContent", &request).await;
    assert_eq!(list[0]["candidates"][0]["content"]["parts"][0]["functionCall"]["args"], city());
}

#[tokio::test(start_paused = true)]
async fn requested_formats_are_answered_in_json() {
    let sim = simulator(|_| ());
    let chat = json!({"response_format": {"type": "json_schema", "json_schema": {"name": "c", "schema": schema(), "strict": true}}});
    let whole = answer(&sim, CHAT, &body(CHAT, chat.clone())).await;
    assert_eq!(whole["choices"][0]["message"]["content"], CITY);
    assert_eq!(whole["choices"][0]["finish_reason"], "stop");
    assert_eq!(joined(&stream(&sim, CHAT, body(CHAT, chat)).await, "/choices/0/delta/content"), CITY);

    let responses = json!({"text": {"format": {"type": "json_schema", "name": "c", "schema": schema()}}});
    let whole = answer(&sim, RESPONSES, &body(RESPONSES, responses.clone())).await;
    assert_eq!(whole["output"][0]["content"][0]["text"], CITY);
    assert_eq!(whole["text"]["format"]["type"], "json_schema", "LangChain reads the format in the answer");
    assert_eq!(joined(&stream(&sim, RESPONSES, body(RESPONSES, responses)).await, "/delta"), CITY);

    let format = json!({"type": "json_schema", "schema": schema()});
    for messages in [json!({"output_config": {"format": format}}), json!({"output_format": format})] {
        let whole = answer(&sim, MESSAGES, &body(MESSAGES, messages.clone())).await;
        assert_eq!(whole["content"][0]["text"], CITY);
        assert_eq!(whole["stop_reason"], "end_turn");
        assert_eq!(joined(&stream(&sim, MESSAGES, body(MESSAGES, messages)).await, "/delta/text"), CITY);
    }

    for key in ["responseSchema", "responseJsonSchema"] {
        let gemini = json!({"generationConfig": {"responseMimeType": "application/json", key: schema()}});
        let whole = answer(&sim, GEMINI, &body(GEMINI, gemini.clone())).await;
        assert_eq!(whole["candidates"][0]["content"]["parts"][0]["text"], CITY);
        let events = stream(&sim, GEMINI_STREAM, body(GEMINI, gemini)).await;
        assert_eq!(joined(&events, "/candidates/0/content/parts/0/text"), CITY);
    }
    let choice = json!({"generationConfig": {"responseMimeType": "text/x.enum", "responseSchema": {"type": "STRING", "enum": ["yes", "no"]}}});
    let whole = answer(&sim, GEMINI, &body(GEMINI, choice)).await;
    assert_eq!(whole["candidates"][0]["content"]["parts"][0]["text"], "yes");

    let object = body(CHAT, json!({"response_format": {"type": "json_object"}}));
    assert_eq!(answer(&sim, CHAT, &object).await["choices"][0]["message"]["content"], "{}");
}

#[tokio::test(start_paused = true)]
async fn a_maximum_cuts_json_off() {
    let sim = simulator(|_| ());
    let tools = json!({"tools": [tool(CHAT, "weather")], "tool_choice": "required", "max_tokens": 3});
    let whole = answer(&sim, CHAT, &body(CHAT, tools)).await;
    let choice = &whole["choices"][0];
    assert_eq!(choice["message"]["tool_calls"][0]["function"]["arguments"], CITY[..12]);
    assert_eq!(
        (&choice["finish_reason"], &whole["usage"]["completion_tokens"]),
        (&json!("length"), &json!(3))
    );
    // `ø` has two bytes, of which the twelfth byte is neither: a character is never split.
    let events = stream(
        &sim,
        CHAT,
        body(
            CHAT,
            json!({"response_format": {"type": "json_schema", "json_schema": {"schema": {"const": "abéé"}}}}),
        ),
    )
    .await;
    assert_eq!(joined(&events, "/choices/0/delta/content"), r#""abéé""#);
    let tools =
        json!({"tools": [tool(MESSAGES, "weather")], "tool_choice": {"type": "any"}, "max_tokens": 3});
    let whole = answer(&sim, MESSAGES, &body(MESSAGES, tools)).await;
    assert_eq!((&whole["content"][0]["input"], &whole["stop_reason"]), (&json!({}), &json!("max_tokens")));
}

#[tokio::test(start_paused = true)]
async fn a_tool_call_takes_the_time_of_its_tokens() {
    let sim = simulator(|_| ());
    let start = Instant::now();
    let tools =
        json!({"tools": [tool(GEMINI, "weather")], "toolConfig": {"functionCallingConfig": {"mode": "ANY"}}});
    let mut request = post(GEMINI_STREAM, &body(GEMINI, tools));
    request.headers_mut().insert("x-sim-prompt-tokens", "100".parse().unwrap());
    text(sim.respond(request).await.unwrap()).await;
    let step = &sim.config().engine.step;
    let expected = step.time(1, 100) + step.time(1, 0) * 10;
    let took = start.elapsed();
    assert!(took >= expected && took < expected + Duration::from_millis(2), "{took:?}, not {expected:?}");
    assert_eq!(sim.stats().attempts[0].output_tokens, 11);
}

#[tokio::test(start_paused = true)]
async fn offered_tools_are_called_only_on_request() {
    let sim = simulator(|_| ());
    for path in [CHAT, RESPONSES, MESSAGES, GEMINI] {
        let whole = answer(&sim, path, &body(path, json!({"tools": [tool(path, "weather")]}))).await;
        assert!(whole.to_string().contains("The tide"), "{whole}");
    }
}

/// Returns the conversation after an answer and the result of the tool that it called.
fn continued(path: &str, mut body: Value, answer: &Value) -> Value {
    let (key, turns) = match path {
        CHAT => {
            let message = &answer["choices"][0]["message"];
            let id = &message["tool_calls"][0]["id"];
            (
                "messages",
                vec![message.clone(), json!({"role": "tool", "tool_call_id": id, "content": "sunny"})],
            )
        }
        RESPONSES => {
            let call = &answer["output"][0];
            (
                "input",
                vec![
                    call.clone(),
                    json!({"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}),
                ],
            )
        }
        MESSAGES => {
            let result =
                json!({"type": "tool_result", "tool_use_id": answer["content"][0]["id"], "content": "sunny"});
            (
                "messages",
                vec![
                    json!({"role": "assistant", "content": answer["content"]}),
                    json!({"role": "user", "content": [result]}),
                ],
            )
        }
        _ => {
            let content = &answer["candidates"][0]["content"];
            let name = &content["parts"][0]["functionCall"]["name"];
            let part = json!({"functionResponse": {"name": name, "response": {"output": "sunny"}}});
            ("contents", vec![content.clone(), json!({"role": "user", "parts": [part]})])
        }
    };
    body[key].as_array_mut().unwrap().extend(turns);
    body
}

#[tokio::test(start_paused = true)]
async fn each_offered_tool_is_called_once_per_user_message() {
    let sim = simulator(|c| c.tool_calls = true);
    for path in [CHAT, RESPONSES, MESSAGES, GEMINI] {
        let tools = json!([tool(path, "weather"), tool(path, "traffic")]);
        let mut request = body(path, json!({"tools": tools}));
        for expected in ["\"weather\"", "\"traffic\"", "The tide"] {
            let whole = answer(&sim, path, &request).await;
            assert!(whole.to_string().contains(expected), "{path}: no {expected} in {whole}");
            request = if expected == "The tide" { request } else { continued(path, request, &whole) };
        }
        let (key, turn) = match path {
            RESPONSES => ("input", json!({"role": "user", "content": "And tomorrow?"})),
            GEMINI => ("contents", json!({"role": "user", "parts": [{"text": "And tomorrow?"}]})),
            _ => ("messages", json!({"role": "user", "content": "And tomorrow?"})),
        };
        request[key].as_array_mut().unwrap().push(turn);
        assert!(answer(&sim, path, &request).await.to_string().contains("\"weather\""), "{path}");
    }
    let output = json!([{"type": "function_call_output", "call_id": "call_1", "output": "sunny"}]);
    let stored = json!({"model": "sim", "previous_response_id": "r", "input": output, "tools": [tool(RESPONSES, "weather")]});
    assert!(
        answer(&sim, RESPONSES, &stored).await.to_string().contains("The tide"),
        "the call is not in the request"
    );
    let never = body(CHAT, json!({"tools": [tool(CHAT, "weather")], "tool_choice": "none"}));
    assert!(answer(&sim, CHAT, &never).await.to_string().contains("The tide"));
}

#[tokio::test(start_paused = true)]
async fn unsupported_requests_are_explained() {
    let sim = simulator(|_| ());
    let tools = json!([tool(CHAT, "weather")]);
    let format = |schema: Value| json!({"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}});
    for (extra, reason) in [
        (json!({"tool_choice": "required"}), "tools contains no function"),
        (
            json!({"tools": tools, "tool_choice": {"type": "function", "function": {"name": "other"}}}),
            "\"other\"",
        ),
        (
            json!({"tools": tools, "tool_choice": {"type": "custom", "custom": {"name": "x"}}}),
            "calls functions only",
        ),
        (json!({"function_call": {"name": "weather"}}), "use tools and tool_choice"),
        (json!({"response_format": {"type": "grammar"}}), "`json_schema`"),
        (json!({"response_format": {"type": "json_schema"}}), "no `schema`"),
        (
            format(json!({"type": "object", "properties": {"a": {"type": "text"}}, "required": ["a"]})),
            "a: the type \"text\"",
        ),
        (format(json!({"$ref": "https://example.com"})), "not a JSON pointer"),
    ] {
        let message = error(&sim, CHAT, extra).await;
        assert!(message.contains(reason), "{message}");
    }
    let hosted = json!({"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}});
    assert!(error(&sim, RESPONSES, hosted).await.contains("calls functions only"));
    let mime = json!({"generationConfig": {"responseMimeType": "text/x.enum"}});
    assert!(error(&sim, GEMINI, mime).await.contains("needs a responseSchema"));
}
