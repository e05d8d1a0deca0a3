//! The gate as JavaScript holds it.

use std::collections::{BTreeMap, HashMap};

use http::Uri;
use napi::bindgen_prelude::Either;
use napi::{Error, Result, Status};
use napi_derive::napi;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;
use tidegate::config::Mode;
use tidegate::transport::{Http, ProxyRules};
use tidegate::{Client, Config, ErrorKind, RequestBody, Transport, config_file, duration};
use tidegate_testing::world::{self, Worlds};

use crate::bridge::{Kind, Outcome, Port, Row, runtime};
use crate::context::{Context, resolve};
use crate::failure::{Failure, made};
use crate::kept;
use crate::reply::exchange;
use crate::request::{self, manner, whole};
use crate::slot::Slot;
use crate::tool::Asked;
use crate::upload::Upload;
use crate::values::Latin1;

/// A gate, for the thread that made it. In each world that a test enters it starts anew from its configuration.
#[napi]
pub struct Gate {
    config: Config,
    /// The proxies of the environment when it was opened.
    proxies: ProxyRules,
    /// Replicas that it was told of, by target: they hold in every world.
    told: Mutex<BTreeMap<String, Value>>,
    worlds: Mutex<Worlds<Open>>,
}

#[derive(Clone)]
struct Open {
    gate: tidegate::Gate,
    client: Client,
}

fn over(
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
            Either::A(Gate { config, proxies, told: Mutex::default(), worlds })
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
    /// The gate in the present world.
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
                let told = self.told.lock();
                told.iter()
                    .try_for_each(|(target, replicas)| open.gate.set_replicas_json(target, replicas))?;
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
}

#[napi]
impl Gate {
    /// Opens a gate of this configuration, given as JSON with the keys of the file. `variables` are
    /// the environment's variables for proxies.
    #[napi]
    pub fn open(json: String, variables: HashMap<String, String>) -> Result<Either<Gate, Failure>> {
        let value = serde_json::from_str(&json)
            .map_err(|e| Error::new(Status::InvalidArg, format!("not JSON: {e}")))?;
        over(Config::from_json(value).map_err(Into::into), &variables)
    }

    /// Opens a gate configured by a TOML file. `variables` are the environment's variables for
    /// proxies.
    #[napi]
    pub fn open_file(path: String, variables: HashMap<String, String>) -> Result<Either<Gate, Failure>> {
        over(config_file::read(path), &variables)
    }

    /// The failure that an error of the core becomes. For conformance tests (`tests/vectors/errors.json`): not every kind can be had at will.
    #[napi]
    pub fn failure(
        kind: String,
        message: String,
        reason: Option<String>,
        target: Option<String>,
        retry_after: Option<f64>,
        queue_position: Option<u32>,
    ) -> Option<Failure> {
        made(&kind, message, reason.as_deref(), target, retry_after, queue_position)
    }

    /// Whether clients may go on as they are: it is off, and no pool's name is to be made an address.
    #[napi(getter)]
    pub fn aside(&self) -> Result<bool> {
        Ok(self.present()?.gate.is_aside())
    }

    /// `enforce`, `observe` or `off`.
    #[napi(getter)]
    pub fn mode(&self) -> Result<&'static str> {
        Ok(match self.present()?.gate.mode() {
            Mode::Enforce => "enforce",
            Mode::Observe => "observe",
            Mode::Off => "off",
        })
    }

    /// The configured target that takes such requests; `null`: none does. A failure for what is no URL.
    #[napi(ts_return_type = "string | null | Failure")]
    pub fn target_for(&self, url: String, model: Option<String>) -> Result<Either<Option<String>, Failure>> {
        let gate = self.present()?.gate;
        // Without the URL: it may hold a key.
        let malformed = |e| tidegate::Error::new(ErrorKind::Request, format!("the URL is malformed: {e}"));
        let uri = url.parse::<Uri>().map_err(malformed);
        Ok(match uri.and_then(|uri| gate.target_for(&uri, model.as_deref())) {
            Ok(target) => Either::A(target.map(|name| name.to_string())),
            Err(error) => Either::B(Failure::from(&error)),
        })
    }

    /// Tells the replicas of a pool, given as a JSON list. A failure, where they stay what they were.
    #[napi(ts_return_type = "Failure | null")]
    pub fn set_replicas(&self, target: String, json: String) -> Result<Option<Failure>> {
        let replicas: Value = serde_json::from_str(&json)
            .map_err(|e| Error::new(Status::InvalidArg, format!("not JSON: {e}")))?;
        let (open, runtime) = (self.present()?, runtime::handle()?);
        let _context = runtime.enter();
        if let Err(error) = open.gate.set_replicas_json(&target, &replicas) {
            return Ok(Some(Failure::from(&error)));
        }
        self.told.lock().insert(target, replicas);
        Ok(None)
    }

    /// The state of everything, as JSON.
    #[napi]
    pub fn snapshot(&self) -> Result<String> {
        let (open, runtime) = (self.present()?, runtime::handle()?);
        let _context = runtime.enter();
        json(&open.gate.snapshot())
    }

    /// How many calls wait for a slot.
    #[napi]
    pub fn queued(&self) -> Result<u32> {
        Ok(u32::try_from(self.present()?.gate.waiting()).unwrap_or(u32::MAX))
    }

    /// Every series, in Prometheus' text format.
    #[napi]
    pub fn prometheus(&self) -> Result<String> {
        Ok(self.present()?.gate.prometheus())
    }

    /// The last calls that ended, oldest first, as JSON.
    #[napi]
    pub fn calls(&self) -> Result<String> {
        json(&self.present()?.gate.calls().records())
    }

    /// Starts a call; its answer, or failure, comes with the number, once the port is flushed. Returns how many calls wait for that. With
    /// `wrapped`, the SDK above was told not to retry. With `kept` the caller's own fetch makes its exchanges, each of which comes with the
    /// number too; true where that streams the body up.
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
            _ if kept == Some(true) => kept::upload(),
            (Some(upload), _) => upload.body()?,
            (None, Some(Either::A(text))) => whole(text.into_bytes()),
            (None, Some(Either::B(bytes))) => whole(bytes.to_vec()),
            (None, None) => RequestBody::default(),
        };
        let mut request = match request::request(&method, &url, &headers.0, body, resolve(context)) {
            Ok(request) => request,
            Err(error) => return Ok(Either::B(Failure::from(&error))),
        };
        // What is in place of the network is so in place of the caller's own fetch too.
        if kept.is_some() && !world::is_faked() {
            let transport = kept::transport(port, number, &request);
            request.extensions_mut().insert(transport);
        }
        let Open { gate, client } = self.present()?;
        let manner = manner(request.headers(), gate.mode(), wrapped);
        let waiting = port.submit(number, exchange(client, request, manner));
        Ok(Either::A(u32::try_from(waiting).unwrap_or(u32::MAX)))
    }

    /// Asks for a tool's slot: takes a free one, or prepares the wait for one.
    #[napi]
    pub fn ask(&self, tool: String, context: Option<&Context>, yield_slot: bool) -> Result<Asked> {
        let (open, runtime) = (self.present()?, runtime::handle()?);
        let _context = runtime.enter();
        Ok(Asked::of(&open.gate, &tool, resolve(context), yield_slot))
    }

    /// Why the call of that number or name waits now, as JSON; `null`: no such call is under way.
    #[napi]
    pub fn explain(&self, call: Either<f64, String>) -> Result<Option<String>> {
        let (open, runtime) = (self.present()?, runtime::handle()?);
        let _context = runtime.enter();
        let told = match call {
            // A number that is none of a call's is one of no call.
            Either::A(number) => open.gate.explain(number as u64),
            Either::B(label) => open.gate.explain(label.as_str()),
        };
        told.as_ref().map(json).transpose()
    }

    /// The same of every call under way, at most so many of them, as JSON.
    #[napi]
    pub fn explain_all(&self, limit: u32) -> Result<String> {
        let (open, runtime) = (self.present()?, runtime::handle()?);
        let _context = runtime.enter();
        json(&open.gate.explain_all(limit as usize))
    }

    /// Waits for a target's slot; the slot, or failure, comes with the number.
    #[napi]
    pub fn acquire_slot(
        &self,
        port: &Port,
        number: u32,
        target: String,
        context: Option<&Context>,
    ) -> Result<()> {
        port.submit(number, Slot::acquire(self.present()?.gate, target, resolve(context)));
        Ok(())
    }

    /// Takes no new calls and waits for those under way; how many are left comes with the number.
    #[napi]
    pub fn drain(&self, port: &Port, number: u32, seconds: f64) -> Result<()> {
        let patience = duration::from_secs(seconds).ok_or_else(|| {
            Error::new(
                Status::InvalidArg,
                format!("seconds: {seconds} is not valid; give a finite number of seconds, 0 or more"),
            )
        })?;
        let gate = self.present()?.gate;
        port.submit(number, async move { Left(gate.drain(patience).await) });
        Ok(())
    }
}

fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|e| Error::from_reason(e.to_string()))
}

struct Left(usize);

impl Outcome for Left {
    fn write(self: Box<Self>, row: &mut Row<'_, '_>) -> Result<()> {
        row.kind(Kind::Count)?;
        row.put(0, u32::try_from(self.0).unwrap_or(u32::MAX))
    }
}
