//! The gate that JavaScript holds.

use std::collections::HashMap;

use napi::bindgen_prelude::Either;
use napi::{Error, Result};
use napi_derive::napi;
use parking_lot::Mutex;
use serde_json::Value;
use tidegate::transport::{Http, ProxyRules};
use tidegate::{Client, Config, RequestBody, Transport, config_file};
use tidegate_bindings::{
    DynamicReplicas, FailureMode, SlotHandle, ToolRequest, error_from_parts, from_json, mode_name, seconds,
    target_for, to_json,
};
use tidegate_testing::world::{self, Worlds};

use crate::bridge::{Kind, Outcome, Port, Row, runtime};
use crate::context::{Context, resolve};
use crate::custom_transport;
use crate::failure::{Failure, invalid};
use crate::reply::exchange;
use crate::request::{self, whole};
use crate::tool::{Asked, YIELD_OPTION};
use crate::upload::Upload;
use crate::values::Latin1;

/// A gate, for the thread that created it. In each test world, the gate starts again from its
/// configuration.
#[napi]
pub struct Gate {
    config: Config,
    /// The proxies of the environment when the gate was opened.
    proxies: ProxyRules,
    replicas: DynamicReplicas,
    worlds: Mutex<Worlds<Open>>,
}

/// A gate in one world.
#[derive(Clone)]
struct Open {
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
        Ok((Open::new(&config, &proxies)?, config, proxies))
    });
    Ok(match opened {
        Ok((open, config, proxies)) => {
            let worlds = Mutex::new(Worlds::new(open));
            Either::A(Gate { config, proxies, replicas: DynamicReplicas::default(), worlds })
        }
        Err(error) => Either::B(Failure::from(&error)),
    })
}

impl Open {
    fn new(config: &Config, proxies: &ProxyRules) -> std::result::Result<Self, tidegate::Error> {
        let transport = match world::transport() {
            None => Transport::new(Http::with_proxies(config.transport.clone(), proxies.clone())?),
            Some(transport) => transport,
        };
        let gate = tidegate::Gate::over(config.clone(), transport)?;
        Ok(Self { client: gate.client(), gate })
    }
}

impl Gate {
    /// Returns the gate of the current world, and opens it if the world is new.
    fn present(&self) -> Result<Open> {
        let mut worlds = self.worlds.lock();
        if let Some(open) = worlds.present() {
            return Ok(open.clone());
        }
        let runtime = runtime::handle()?;
        let _context = runtime.enter();
        let fresh = if worlds.knows(|_| true) {
            None
        } else {
            let reopen = || {
                let open = Open::new(&self.config, &self.proxies)?;
                self.replicas.restore(&open.gate)?;
                Ok::<_, tidegate::Error>(open)
            };
            Some(reopen().map_err(|error| Error::from_reason(error.to_string()))?)
        };
        let gone = worlds.change(fresh, |_| true);
        let present = worlds.present().cloned();
        drop(worlds);
        drop(gone);
        present.ok_or_else(|| Error::from_reason("the world of this gate changed meanwhile"))
    }

    /// Runs a query on the gate inside the runtime, whose clock the gate uses.
    fn ask_inside<T>(&self, f: impl FnOnce(&tidegate::Gate) -> T) -> Result<T> {
        let (open, runtime) = (self.present()?, runtime::handle()?);
        let _context = runtime.enter();
        Ok(f(&open.gate))
    }
}

#[napi]
impl Gate {
    /// Opens a gate with this configuration, in JSON with the keys of the file. `variables` are the
    /// environment's variables for proxies.
    #[napi]
    pub fn open(json: String, variables: HashMap<String, String>) -> Result<Either<Gate, Failure>> {
        open(Config::from_json(from_json(&json).map_err(invalid)?).map_err(Into::into), &variables)
    }

    /// Opens a gate configured by a TOML file. `variables` are the environment's variables for
    /// proxies.
    #[napi]
    pub fn open_file(path: String, variables: HashMap<String, String>) -> Result<Either<Gate, Failure>> {
        open(config_file::read(path), &variables)
    }

    /// Returns the failure of an error with these parts, for conformance tests
    /// (`tests/vectors/errors.json`), because not every error can be provoked. `null` if the core
    /// has no such error.
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

    /// Whether clients can bypass the gate: its mode is `off`, and it has no pool, whose name would
    /// have to be resolved.
    #[napi(getter)]
    pub fn aside(&self) -> Result<bool> {
        Ok(self.present()?.gate.is_bypassed())
    }

    /// The mode: `enforce`, `observe` or `off`.
    #[napi(getter)]
    pub fn mode(&self) -> Result<&'static str> {
        Ok(mode_name(self.present()?.gate.mode()))
    }

    /// Returns the name of the target that receives such requests, `null` if no target does, or a
    /// failure if the URL is malformed.
    #[napi(ts_return_type = "string | null | Failure")]
    pub fn target_for(&self, url: String, model: Option<String>) -> Result<Either<Option<String>, Failure>> {
        Ok(match target_for(&self.present()?.gate, &url, model.as_deref()) {
            Ok(target) => Either::A(target),
            Err(error) => Either::B(Failure::from(&error)),
        })
    }

    /// Sets the replicas of a pool, given as a JSON list. Returns a failure if the list is invalid;
    /// the replicas then remain unchanged.
    #[napi(ts_return_type = "Failure | null")]
    pub fn set_replicas(&self, target: String, json: String) -> Result<Option<Failure>> {
        let replicas: Value = from_json(&json).map_err(invalid)?;
        if let Err(error) = self.ask_inside(|gate| gate.set_replicas_json(&target, &replicas))? {
            return Ok(Some(Failure::from(&error)));
        }
        self.replicas.remember(target, replicas);
        Ok(None)
    }

    /// Returns the state of everything, as JSON.
    #[napi]
    pub fn snapshot(&self) -> Result<String> {
        self.ask_inside(|gate| to_json(&gate.snapshot()))?.map_err(invalid)
    }

    /// Returns the number of calls that wait for a slot.
    #[napi]
    pub fn queued(&self) -> Result<u32> {
        Ok(u32::try_from(self.present()?.gate.waiting()).unwrap_or(u32::MAX))
    }

    /// Returns all metrics, in Prometheus' text format.
    #[napi]
    pub fn prometheus(&self) -> Result<String> {
        Ok(self.present()?.gate.prometheus())
    }

    /// Returns the records of the last calls that ended, oldest first, as JSON.
    #[napi]
    pub fn calls(&self) -> Result<String> {
        to_json(&self.present()?.gate.calls().records()).map_err(invalid)
    }

    /// Starts a call. Its answer or failure arrives with the number, after the port is flushed.
    /// Returns how many calls wait for the flush.
    ///
    /// `wrapped` says that the retries of the SDK above are off. If `kept` is given, the caller's
    /// own fetch makes the exchanges, which arrive with the number too; `true` means that fetch
    /// also streams the request body.
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
        kept: Option<bool>,
    ) -> Result<Either<u32, Failure>> {
        let body = match (upload, body) {
            _ if kept == Some(true) => custom_transport::upload(),
            (Some(upload), _) => upload.body()?,
            (None, Some(Either::A(text))) => whole(text.into_bytes()),
            (None, Some(Either::B(bytes))) => whole(bytes.to_vec()),
            (None, None) => RequestBody::default(),
        };
        let mut request = match request::request(&method, &url, &headers.0, body, resolve(context)) {
            Ok(request) => request,
            Err(error) => return Ok(Either::B(Failure::from(&error))),
        };
        // A fake target replaces the caller's own fetch too.
        if kept.is_some() && !world::is_faked() {
            let transport = custom_transport::transport(port, number, &request);
            request.extensions_mut().insert(transport);
        }
        let Open { gate, client } = self.present()?;
        let failures = FailureMode::of_request(request.headers(), gate.mode(), wrapped);
        let waiting = port.submit(number, exchange(client, request, failures));
        Ok(Either::A(u32::try_from(waiting).unwrap_or(u32::MAX)))
    }

    /// Requests a tool's slot: takes a free one, or prepares to wait for one.
    #[napi]
    pub fn ask(&self, tool: String, context: Option<&Context>, yield_slot: bool) -> Result<Asked> {
        let context = resolve(context);
        self.ask_inside(|gate| Asked(ToolRequest::new(gate, &tool, context, yield_slot, YIELD_OPTION)))
    }

    /// Returns what the call with that number or label waits for, as JSON; `null` if no such call
    /// is in flight.
    #[napi]
    pub fn explain(&self, call: Either<f64, String>) -> Result<Option<String>> {
        let explanation = self.ask_inside(|gate| match call {
            // A number that is not a call's is looked up, and not found.
            Either::A(number) => gate.explain(number as u64),
            Either::B(label) => gate.explain(label.as_str()),
        })?;
        explanation.as_ref().map(to_json).transpose().map_err(invalid)
    }

    /// Returns what each call in flight waits for, at most `limit` calls, as JSON.
    #[napi]
    pub fn explain_all(&self, limit: u32) -> Result<String> {
        self.ask_inside(|gate| to_json(&gate.explain_all(limit as usize)))?.map_err(invalid)
    }

    /// Waits for a target's slot. The slot, or a failure, arrives with the number.
    #[napi]
    pub fn acquire_slot(
        &self,
        port: &Port,
        number: u32,
        target: String,
        context: Option<&Context>,
    ) -> Result<()> {
        port.submit(number, SlotHandle::acquire(self.present()?.gate, target, resolve(context)));
        Ok(())
    }

    /// Rejects new calls, and waits for those in flight. The number of calls that are left arrives
    /// with the number.
    #[napi]
    pub fn drain(&self, port: &Port, number: u32, patience: f64) -> Result<()> {
        let patience = seconds("seconds", patience).map_err(invalid)?;
        let gate = self.present()?.gate;
        port.submit(number, async move { CallsLeft(gate.drain(patience).await) });
        Ok(())
    }
}

/// The number of calls that were in flight when a drain ended.
struct CallsLeft(usize);

impl Outcome for CallsLeft {
    fn write(self: Box<Self>, row: &mut Row<'_, '_>) -> Result<()> {
        row.kind(Kind::Count)?;
        row.put(0, u32::try_from(self.0).unwrap_or(u32::MAX))
    }
}
