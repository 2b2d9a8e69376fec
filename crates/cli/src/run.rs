// SPDX-License-Identifier: Apache-2.0
//! The daemon: a node with its gateway, control socket, metrics and signals.

use crate::audit::{AuditError, AuditLog};
use crate::control::{ControlError, ControlServer, NodeControl};
use crate::descriptors;
use crate::metrics::MetricsError;
use crate::origin::Origin;
use crate::reload::Reloader;
use crate::service;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
#[cfg(any(feature = "ros1", feature = "ros2"))]
use std::path::PathBuf;
use std::sync::Arc;
use tautline::audit::{Actor, Event};
use tautline::config::{Config, Ros1Config, Ros2Config, Security};
use tautline::{DataPlane, Handle, OpenError, Settings, SystemError, Watchdog};
use tautline_gateway::{Command, Gateway, GatewayStatus};

/// The reason why the daemon cannot start or continue.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The node cannot start.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The node cannot continue.
    #[error(transparent)]
    Node(#[from] tautline::RunError),
    /// The kernel refused a basic operation.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The gateway cannot start.
    #[error("{0}")]
    Gateway(String),
    /// The control socket cannot be opened.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The audit log cannot be opened.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The metrics address cannot be used.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
}

/// Runs the daemon until SIGTERM or SIGINT. Then queued messages are sent, peers get a goodbye, and
/// the gateway unregisters. SIGHUP applies changes of the file.
pub fn run(config: Config, origin: &Origin) -> Result<(), RunError> {
    descriptors::raise_limit();
    let mut node = DataPlane::new(config.clone())?;
    let handle = Arc::new(node.handle());
    let reloader = Reloader::start(origin.clone(), config.clone(), handle.clone())?;
    let reloader = Arc::new(reloader);
    // A second daemon with this control socket, and therefore with this audit log, stops here.
    let _control = ControlServer::start(&config.control, reloader.clone())?;
    let log = AuditLog::start(&config.audit)?;
    log.audit().record(None, started_event(&config, &node, origin));
    node.record_in(log.audit());
    let result = run_node(&config, node, handle, reloader);
    let error = result.as_ref().err().map(|error| error.to_string().into());
    log.audit().record(None, Event::Stopped { error });
    result
}

fn started_event(config: &Config, node: &DataPlane, origin: &Origin) -> Event {
    let is_secure = config.security != Security::None;
    Event::Started {
        node: (&config.name).into(),
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        key: is_secure.then(|| node.key().to_string().into()),
        file: origin.file.display().to_string().into(),
        sha256: (&origin.sha256).into(),
    }
}

fn run_node(
    config: &Config,
    node: DataPlane,
    handle: Arc<Handle>,
    reloader: Arc<Reloader>,
) -> Result<(), RunError> {
    let gateway = gateway(config, &node)?;
    handle_signals(handle, reloader)?;
    tracing::info!(name = config.name, listen = %config.listen, "running");
    service::notify_ready();
    let watchdog = service::watchdog_interval();
    let watchdog = watchdog.map(|every| Watchdog { every, alive: service::notify_alive });
    let settings = Settings { watchdog, planner: Some(tautline_plan::channel_model) };
    let result = node.run(gateway, &settings);
    tracing::info!("stopped");
    Ok(result?)
}

fn handle_signals(handle: Arc<Handle>, reloader: Arc<Reloader>) -> Result<(), RunError> {
    let system = |what| move |error| SystemError { what, error };
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])
        .map_err(system("signals"))?;
    let stops = handle.clone();
    let wait = move || {
        let mut stopping = false;
        for signal in signals.forever() {
            match signal {
                SIGHUP if stopping => {}
                SIGHUP => reload_on_signal(&reloader),
                signal if stopping => {
                    tracing::warn!(signal, "stopping immediately");
                    std::process::exit(1);
                }
                signal => {
                    stopping = true;
                    tracing::info!(signal, "draining and stopping");
                    service::notify_stopping();
                    stops.shutdown();
                }
            }
        }
    };
    Ok(handle.spawn("signals", wait).map_err(system("starting a thread"))?)
}

fn reload_on_signal(reloader: &Reloader) {
    service::notify_reloading();
    // The result is in the log.
    let _ = reloader.reload(false, Actor::Signal);
    service::notify_ready();
}

fn gateway(config: &Config, node: &DataPlane) -> Result<Box<dyn Gateway>, RunError> {
    let gateway = match (&config.ros1, &config.ros2) {
        (Some(ros1), _) => start_ros1(ros1, config, node)?,
        (None, Some(ros2)) => start_ros2(ros2, config, node)?,
        (None, None) => None,
    };
    Ok(gateway.unwrap_or_else(|| Box::new(NoGateway)))
}

/// Returns the path of a file of this node in the folder `state`. `kind` is `latched` (latched messages
/// that local subscribers received) or `goals` (clients that wait for a response about a goal).
#[cfg(any(feature = "ros1", feature = "ros2"))]
fn state_file(config: &Config, kind: &str) -> PathBuf {
    config.state.join(format!("{}.{kind}", config.name))
}

type Started = Result<Option<Box<dyn Gateway>>, RunError>;

#[cfg(feature = "ros1")]
fn start_ros1(ros1: &Ros1Config, config: &Config, node: &DataPlane) -> Started {
    use tautline_gateway::ros1::{Ros1, Ros1Options};
    let options = Ros1Options {
        master_uri: ros1.master.clone(),
        host: ros1.host.clone(),
        allow: ros1.allow.clone(),
        node_name: ros1.node_name.clone(),
        tautline_name: config.name.clone(),
        max_message: config.limits.max_message,
        installed: ros1.installed.clone(),
        deliveries: Some(state_file(config, "latched")),
    };
    let started = Ros1::start(options, node.selector(), node.events());
    started.map(|g| Some(Box::new(g) as _)).map_err(|error| RunError::Gateway(error.to_string()))
}

#[cfg(not(feature = "ros1"))]
fn start_ros1(_: &Ros1Config, _: &Config, _: &DataPlane) -> Started {
    Ok(None)
}

#[cfg(feature = "ros2")]
fn start_ros2(ros2: &Ros2Config, config: &Config, node: &DataPlane) -> Started {
    use tautline_gateway::ros2::{DiscoveryRange, Ros2, Ros2Options};
    use tautline_gateway::types::installed::InstalledTypes;
    let options = Ros2Options {
        domain: ros2.domain,
        range: if ros2.localhost { DiscoveryRange::Loopback } else { DiscoveryRange::Machine },
        node_name: ros2.node_name.clone(),
        tautline_name: config.name.clone(),
        max_message: config.limits.max_message,
        installed: InstalledTypes::new(ros2.definitions.clone()),
        deliveries: Some(state_file(config, "latched")),
        goals: Some(state_file(config, "goals")),
    };
    let started = Ros2::start(options, node.selector(), node.events());
    started.map(|g| Some(Box::new(g) as _)).map_err(|error| RunError::Gateway(error.to_string()))
}

#[cfg(not(feature = "ros2"))]
fn start_ros2(_: &Ros2Config, _: &Config, _: &DataPlane) -> Started {
    let text = "this program was built without ROS 2 (feature ros2)";
    Err(RunError::Gateway(text.into()))
}

/// A node without middleware of its own.
struct NoGateway;

impl Gateway for NoGateway {
    fn handle(&self, _command: Command) {}

    fn status(&self) -> GatewayStatus {
        GatewayStatus { kind: "none", ..GatewayStatus::default() }
    }

    fn shutdown(self: Box<Self>) {}
}
