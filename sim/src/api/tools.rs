//! Reads the tools of a request: which are offered, which may or must be called, and which were
//! called before.

use serde_json::{Map, Value};

use super::{ApiError, Protocol};

/// A function that the model may call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tool<'a> {
    pub(super) name: &'a str,
    /// JSON schema of its arguments, or `None` if the request has none.
    pub(super) schema: Option<&'a Value>,
}

/// Which tools the answer may call. The lists are names; an empty list means all offered tools.
#[derive(Debug)]
pub(super) enum Choice<'a> {
    Never,
    Auto(Vec<&'a str>),
    Required(Vec<&'a str>),
}

/// Returns the offered functions, in the order of the request. Tools that run at the provider, such
/// as web search, are not among them.
pub(super) fn offered(protocol: Protocol, body: &Map<String, Value>) -> Vec<Tool<'_>> {
    let tools = items(body.get("tools"));
    match protocol {
        Protocol::Chat => {
            tools.iter().filter_map(|t| Tool::read(t.get("function")?, &["parameters"])).collect()
        }
        Protocol::Responses => {
            let functions = tools.iter().filter(|t| kind(t) == "function");
            functions.filter_map(|t| Tool::read(t, &["parameters"])).collect()
        }
        Protocol::Messages => {
            let functions = tools.iter().filter(|t| t.get("input_schema").is_some());
            functions.filter_map(|t| Tool::read(t, &["input_schema"])).collect()
        }
        Protocol::Gemini => {
            let functions = tools.iter().flat_map(|t| items(t.get("functionDeclarations")));
            // Google's Python SDK sends one of the keys in snake case.
            let keys = ["parametersJsonSchema", "parameters_json_schema", "parameters"];
            functions.filter_map(|f| Tool::read(f, &keys)).collect()
        }
        Protocol::Completions => Vec::new(),
    }
}

impl<'a> Tool<'a> {
    fn read(function: &'a Value, schema_keys: &[&str]) -> Option<Self> {
        let schema = schema_keys.iter().find_map(|key| function.get(key)).filter(|schema| !schema.is_null());
        Some(Self { name: function.get("name")?.as_str()?, schema })
    }
}

/// Reads which tools the answer may or must call.
///
/// # Errors
///
/// Returns a 400 for a choice that the simulator does not support, such as a tool that runs at the
/// provider.
pub(super) fn choice(protocol: Protocol, body: &Map<String, Value>) -> Result<Choice<'_>, ApiError> {
    if protocol == Protocol::Gemini {
        let config = body.get("toolConfig").and_then(|config| config.get("functionCallingConfig"));
        let names =
            || items(config.and_then(|c| c.get("allowedFunctionNames"))).iter().filter_map(Value::as_str);
        let mode = config.and_then(|config| config.get("mode")).and_then(Value::as_str);
        return Ok(match mode {
            Some("ANY") => Choice::Required(names().collect()),
            Some("NONE") => Choice::Never,
            _ => Choice::Auto(Vec::new()),
        });
    }
    if body.get("function_call").is_some_and(Value::is_object) {
        let message = "function_call is not supported; use tools and tool_choice";
        return Err(ApiError::bad_request(message).param("function_call"));
    }
    let choice = match body.get("tool_choice") {
        None | Some(Value::Null) => return Ok(Choice::Auto(Vec::new())),
        Some(choice) => choice,
    };
    let unsupported = || {
        let message =
            format!("the simulator does not support the tool_choice {choice}; it calls functions only");
        ApiError::bad_request(message).param("tool_choice")
    };
    match choice.as_str().unwrap_or_else(|| kind(choice)) {
        "none" => Ok(Choice::Never),
        "auto" => Ok(Choice::Auto(Vec::new())),
        "required" | "any" => Ok(Choice::Required(Vec::new())),
        "function" | "tool" => Ok(Choice::Required(vec![function_name(choice).ok_or_else(unsupported)?])),
        "allowed_tools" => {
            let allowed = choice.get("allowed_tools").unwrap_or(choice);
            let names = items(allowed.get("tools")).iter().filter_map(function_name).collect();
            match allowed.get("mode").and_then(Value::as_str) {
                Some("required") => Ok(Choice::Required(names)),
                _ => Ok(Choice::Auto(names)),
            }
        }
        _ => Err(unsupported()),
    }
}

/// Returns the offered tools with one of the `names`, or all offered tools if there are no `names`.
///
/// # Errors
///
/// Returns a 400 if this leaves no tool, or if a name is not offered.
pub(super) fn allowed<'a>(offered: &[Tool<'a>], names: &[&str]) -> Result<Vec<Tool<'a>>, ApiError> {
    let unknown = names.iter().find(|name| !offered.iter().any(|tool| tool.name == **name));
    let error = |message: String| Err(ApiError::bad_request(message).param("tool_choice"));
    match unknown {
        Some(name) => error(format!("tool_choice names {name:?}, which is not a function in tools")),
        None if offered.is_empty() => {
            error("tool_choice requires a call, but tools contains no function".to_owned())
        }
        None => Ok(offered
            .iter()
            .filter(|tool| names.is_empty() || names.contains(&tool.name))
            .copied()
            .collect()),
    }
}

/// Returns the names of the tools that the conversation has called since its last user message. If
/// the calls are not in the request, because the server is expected to have them, but their results
/// are, returns all offered tools.
pub(super) fn called<'a>(
    protocol: Protocol,
    body: &'a Map<String, Value>,
    offered: &[Tool<'a>],
) -> Vec<&'a str> {
    let key = match protocol {
        Protocol::Responses => "input",
        Protocol::Gemini => "contents",
        _ => "messages",
    };
    let (mut called, mut results) = (Vec::new(), 0);
    for message in items(body.get(key)) {
        let parts =
            [items(message.get("content")), items(message.get("parts")), items(message.get("tool_calls"))];
        let parts = || parts.iter().copied().flatten().chain([message]);
        let has_result = parts().any(is_result);
        if message.get("role").and_then(Value::as_str) == Some("user") && !has_result {
            (called, results) = (Vec::new(), 0);
        }
        results += usize::from(has_result);
        called.extend(parts().filter_map(called_name));
    }
    if called.is_empty() && results > 0 {
        called.extend(offered.iter().map(|tool| tool.name));
    }
    called
}

fn is_result(part: &Value) -> bool {
    matches!(kind(part), "tool_result" | "function_call_output")
        || part.get("functionResponse").is_some()
        || part.get("role").is_some_and(|role| role == "tool")
}

/// Returns the name of the function that a part of a message calls, in any protocol.
fn called_name(part: &Value) -> Option<&str> {
    match kind(part) {
        "function_call" | "tool_use" | "function" => function_name(part),
        _ => function_name(part.get("functionCall")?),
    }
}

fn function_name(value: &Value) -> Option<&str> {
    value.get("function").unwrap_or(value).get("name")?.as_str()
}

fn kind(value: &Value) -> &str {
    value.get("type").and_then(Value::as_str).unwrap_or_default()
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
