//! The native gate behind the `Gate` class of the Node package.

use std::collections::HashMap;

use napi::bindgen_prelude::Either;
use napi::{Error, Result};
use napi_derive::napi;
use parking_lot::Mutex;
use serde_json::Value;
use tidegate::transport::{Http, ProxyRules};
use tidegate::{Client, Config, RequestBody, Transport, config_file};
use tidegate_bindings::{
    DynamicReplicas, FailureMode, SlotHandle, ToolRequestHandle, error_from_parts, from_json, seconds,
    target_for, to_json,
};
use tidegate_testing::replaced_network::{self, Worlds};

use crate::body_upload::Upload;
use crate::bridge::{CompletionKind, Outcome, Port, Row, runtime};
use crate::context::{Context, resolve};
use crate::custom_transport;
use crate::errors::{Failure, argument_error};
use crate::request::{self, body_in_memory};
use crate::response::run_call;
use crate::tool_slot::{ToolRequest, YIELD_OPTION};
use crate::values::Latin1;

/// Returns the slots of all shared limits of this process. Called when the process exits.
#[napi]
pub fn return_shared_slots() {
    tidegate::return_shared_slots();
}

/// A gate that one thread of JavaScript uses. While a test has a fake target installed or a virtual
/// clock entered, the gate is in a separate *world*: it starts there from its configuration,
/// without the state of other worlds, and shares nothing with other processes.
#[napi]
pub struct Gate {
    config: Config,
    /// The proxy rules from the environment variables at the time when the gate was opened.
    proxies: ProxyRules,
    replicas: DynamicReplicas,
    worlds: Mutex<Worlds<OpenGate>>,
}

/// A gate and its client, opened for one world: for real operation, for one installed fake target,
/// or for one virtual clock.
#[derive(Clone)]
struct OpenGate {
    gate: tidegate::Gate,
    client: Client,
}

fn open(
    config: std::result::Result<Config, tidegate::Error>,
    variables: &HashMap<String, String>,
) -> Result<Either<Gate, Failure>> {
    let runtime = runtime::handle()?;
    let _context = runtime.enter();
    let opened = config.and_then(|config| {
        let proxies = match config.transport.proxy_from_env {
            true => ProxyRules::from_undici_env(|name| variables.get(name).cloned())?,
            false => ProxyRules::default(),
        };
        Ok((OpenGate::new(&config, &proxies)?, config, proxies))
    });
    Ok(match opened {
        Ok((open, config, proxies)) => {
            let worlds = Mutex::new(Worlds::new(open));
            Either::A(Gate { config, proxies, replicas: DynamicReplicas::default(), worlds })
        }
        Err(error) => Either::B(Failure::from(&error)),
    })
}

impl OpenGate {
    fn new(config: &Config, proxies: &ProxyRules) -> std::result::Result<Self, tidegate::Error> {
        let transport = match replaced_network::transport() {
            None => Transport::new(Http::with_proxies(config.transport.clone(), proxies.clone())?),
            Some(transport) => transport,
        };
        let gate = tidegate::Gate::over(replaced_network::config_in_world(config), transport)?;
        Ok(Self { client: gate.client(), gate })
    }
}

impl Gate {
    /// Returns the gate of the current world. Opens it first if this is the first use in that
    /// world.
    fn current(&self) -> Result<OpenGate> {
        let mut worlds = self.worlds.lock();
        if let Some(open) = worlds.present() {
            return Ok(open.clone());
        }
        let runtime = runtime::handle()?;
        let _context = runtime.enter();
        let fresh = if worlds.has_value(|_| true) {
            None
        } else {
            let reopen = || {
                let open = OpenGate::new(&self.config, &self.proxies)?;
                self.replicas.restore(&open.gate)?;
                Ok::<_, tidegate::Error>(open)
            };
            Some(reopen().map_err(|error| Error::from_reason(error.to_string()))?)
        };
        let previous = worlds.switch_world(fresh, |_| true);
        let current = worlds.present().cloned();
        drop(worlds);
        drop(previous);
        current.ok_or_else(|| Error::from_reason("the world of this gate changed meanwhile"))
    }

    /// Calls `f` with the gate of the current world, and returns its result. Enters the runtime
    /// first, because the gate reads the runtime's clock.
    fn query<T>(&self, f: impl FnOnce(&tidegate::Gate) -> T) -> Result<T> {
        let (open, runtime) = (self.current()?, runtime::handle()?);
        let _context = runtime.enter();
        Ok(f(&open.gate))
    }
}

#[napi]
impl Gate {
    /// Opens a gate from a JSON configuration, which has the keys of the configuration file.
    /// `variables` are the environment variables that configure proxies, by name. Returns a failure
    /// if the configuration is invalid.
    #[napi]
    pub fn open(json: String, variables: HashMap<String, String>) -> Result<Either<Gate, Failure>> {
        open(Config::from_json(from_json(&json).map_err(argument_error)?).map_err(Into::into), &variables)
    }

    /// Opens a gate that a TOML file configures. `variables` are the environment variables that
    /// configure proxies, by name. Returns a failure if the file cannot be read or is invalid.
    #[napi]
    pub fn open_file(path: String, variables: HashMap<String, String>) -> Result<Either<Gate, Failure>> {
        open(config_file::read(path), &variables)
    }

    /// Creates a failure from its parts. Conformance tests (`tests/vectors/errors.json`) need this,
    /// because they cannot provoke every error. Returns null if the core has no error of this
    /// `kind` with this `reason`, or if `retry_after` (in seconds) is invalid.
    #[napi]
    pub fn failure(
        kind: String,
        message: String,
        reason: Option<String>,
        target: Option<String>,
        retry_after: Option<f64>,
        queue_position: Option<u32>,
    ) -> Option<Failure> {
        let position = queue_position.map(|position| position as usize);
        let (reason, target) = (reason.as_deref(), target.as_deref());
        let error = error_from_parts(&kind, message, reason, target, retry_after, position);
        error.ok().flatten().map(|error| Failure::from(&error))
    }

    /// Returns `true` if clients can bypass the gate, because its mode is `off` and no target is a
    /// pool. Only the gate can resolve the address of a pool.
    #[napi(getter)]
    pub fn can_bypass(&self) -> Result<bool> {
        Ok(self.current()?.gate.is_bypassed())
    }

    /// The mode of the gate: `enforce`, `observe` or `off`.
    #[napi(getter)]
    pub fn mode(&self) -> Result<&'static str> {
        Ok(self.current()?.gate.mode().as_str())
    }

    /// Returns the name of the configured target that receives a request to this URL for this
    /// model, null if none matches, or a failure if the URL is malformed.
    #[napi(ts_return_type = "string | null | Failure")]
    pub fn target_for(&self, url: String, model: Option<String>) -> Result<Either<Option<String>, Failure>> {
        Ok(match target_for(&self.current()?.gate, &url, model.as_deref()) {
            Ok(target) => Either::A(target),
            Err(error) => Either::B(Failure::from(&error)),
        })
    }

    /// Replaces the replicas of the pool `target` by those in a JSON list. Returns null, or a
    /// failure if the list is invalid; the replicas then remain unchanged.
    #[napi(ts_return_type = "Failure | null")]
    pub fn set_replicas(&self, target: String, json: String) -> Result<Option<Failure>> {
        let replicas: Value = from_json(&json).map_err(argument_error)?;
        if let Err(error) = self.query(|gate| gate.set_replicas_json(&target, &replicas))? {
            return Ok(Some(Failure::from(&error)));
        }
        self.replicas.record(target, replicas);
        Ok(None)
    }

    /// Returns the state of all targets and tools, as JSON.
    #[napi]
    pub fn snapshot(&self) -> Result<String> {
        self.query(|gate| to_json(&gate.snapshot()))?.map_err(argument_error)
    }

    /// Returns the number of calls that currently wait for a slot of any target. Waits for tools
    /// are not included.
    #[napi]
    pub fn queued(&self) -> Result<u32> {
        Ok(u32::try_from(self.current()?.gate.waiting()).unwrap_or(u32::MAX))
    }

    /// Returns all metrics, in Prometheus' text format.
    #[napi]
    pub fn prometheus(&self) -> Result<String> {
        Ok(self.current()?.gate.prometheus())
    }

    /// Returns the records of the calls that ended most recently, oldest first, as JSON.
    #[napi]
    pub fn calls(&self) -> Result<String> {
        to_json(&self.current()?.gate.calls().records()).map_err(argument_error)
    }

    /// Starts a call. Its response or failure is delivered under `number`, after the port was
    /// flushed. Returns the number of calls that now wait for the flush, or a failure if the
    /// request is malformed.
    ///
    /// `headers` has two lines for each header: `name\nvalue\n`. `wrapped` is `true` if the retries
    /// of the calling SDK are switched off. `max_attempts` is the maximum number of attempts that
    /// the SDK was configured with. If it is undefined, the configuration of the gate applies.
    ///
    /// If `custom_fetch` is undefined, the native transport makes the exchanges of the call.
    /// Otherwise the caller's own fetch makes them, and each request for an exchange is also
    /// delivered under `number`. The value of `custom_fetch` is then `true` if that fetch streams
    /// the request body itself, and `false` if the request body is in `body`.
    #[napi(ts_return_type = "number | Failure")]
    #[allow(clippy::too_many_arguments)]
    pub fn send(
        &self,
        port: &Port,
        number: u32,
        method: String,
        url: String,
        headers: Latin1,
        body: Option<Either<String, &[u8]>>,
        upload: Option<&Upload>,
        context: Option<&Context>,
        wrapped: bool,
        max_attempts: Option<u32>,
        custom_fetch: Option<bool>,
    ) -> Result<Either<u32, Failure>> {
        let body = match (upload, body) {
            _ if custom_fetch == Some(true) => custom_transport::unread_upload(),
            (Some(upload), _) => upload.body()?,
            (None, Some(Either::A(text))) => body_in_memory(text.into_bytes()),
            (None, Some(Either::B(bytes))) => body_in_memory(bytes.to_vec()),
            (None, None) => RequestBody::default(),
        };
        let context = tidegate::Context { max_attempts, ..resolve(context) };
        let mut request = match request::request(&method, &url, &headers.0, body, context) {
            Ok(request) => request,
            Err(error) => return Ok(Either::B(Failure::from(&error))),
        };
        if custom_fetch.is_some() {
            let transport = custom_transport::transport(port, number, &request);
            request.extensions_mut().insert(transport);
        }
        let OpenGate { gate, client } = self.current()?;
        let failures = FailureMode::for_request(request.headers(), gate.mode(), wrapped);
        let waiting = port.submit(number, run_call(client, request, failures));
        Ok(Either::A(u32::try_from(waiting).unwrap_or(u32::MAX)))
    }

    /// Requests a slot of a tool: takes a free slot, or joins the queue. If `yield_slot` is `true`,
    /// the model slots of the caller can be released while the caller waits for the tool or uses
    /// it.
    #[napi]
    pub fn request_tool(
        &self,
        tool: String,
        context: Option<&Context>,
        yield_slot: bool,
    ) -> Result<ToolRequest> {
        let context = resolve(context);
        self.query(|gate| ToolRequest(ToolRequestHandle::new(gate, &tool, context, yield_slot, YIELD_OPTION)))
    }

    /// Returns the state of the active call or wait for a tool with this number or label, and the
    /// rule that blocks it, as JSON. Null if none is active.
    #[napi]
    pub fn explain(&self, call: Either<f64, String>) -> Result<Option<String>> {
        let explanation = self.query(|gate| match call {
            // A number that is not a call's is looked up, and not found.
            Either::A(number) => gate.explain(number as u64),
            Either::B(label) => gate.explain(label.as_str()),
        })?;
        explanation.as_ref().map(to_json).transpose().map_err(argument_error)
    }

    /// Returns the state of the active calls and of the waits for tools, and the rules that block
    /// them, as a JSON list of at most `limit` entries. Those that wait come before the others, and
    /// older ones come first in both groups.
    #[napi]
    pub fn explain_all(&self, limit: u32) -> Result<String> {
        self.query(|gate| to_json(&gate.explain_all(limit as usize)))?.map_err(argument_error)
    }

    /// Requests a slot of a target. The slot, or a failure, is delivered under `number`.
    #[napi]
    pub fn acquire_slot(
        &self,
        port: &Port,
        number: u32,
        target: String,
        context: Option<&Context>,
    ) -> Result<()> {
        port.submit(number, SlotHandle::acquire(self.current()?.gate, target, resolve(context)));
        Ok(())
    }

    /// Rejects new calls from now on, and waits until no call is active, for at most `patience`
    /// seconds. Then delivers the number of calls that are still active under `number`.
    #[napi]
    pub fn drain(&self, port: &Port, number: u32, patience: f64) -> Result<()> {
        let patience = seconds("seconds", patience).map_err(argument_error)?;
        let gate = self.current()?.gate;
        port.submit(number, async move { CallsLeft(gate.drain(patience).await) });
        Ok(())
    }
}

/// The number of calls that were still active when a drain ended.
struct CallsLeft(usize);

impl Outcome for CallsLeft {
    fn write(self: Box<Self>, row: &mut Row<'_, '_>) -> Result<()> {
        row.kind(CompletionKind::Count)?;
        row.put(0, u32::try_from(self.0).unwrap_or(u32::MAX))
    }
}
