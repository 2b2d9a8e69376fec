// SPDX-License-Identifier: Apache-2.0
//! The daemon: a node with its gateway, control socket, metrics and signals.

use crate::config::{Config, Ros1Config, Ros2Config};
use crate::control;
use crate::driver::Settings;
use crate::metrics;
use crate::node::{Handle, Node, RunError};
use crate::service;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use tautline_gateway::{Command, Gateway, GatewayStatus};

/// Runs the daemon until SIGTERM or SIGINT; then what waits is sent, peers are
/// told, and the gateway unregisters.
pub fn run(config: Config) -> Result<(), RunError> {
    let node = Node::new(config.clone())?;
    let handle = Arc::new(node.handle());
    let _control = control::ControlServer::start(&config.control, handle.clone())?;
    let _metrics = match config.metrics {
        Some(address) => Some(metrics::MetricsServer::start(address, handle.clone())?),
        None => None,
    };
    let gateway = gateway(&config, &node)?;
    stop_on_signals(handle)?;
    tracing::info!(name = config.name, listen = %config.listen, "running");
    service::ready();
    let settings = Settings { watchdog: service::watchdog_interval() };
    let result = node.run(gateway, &settings);
    tracing::info!("stopped");
    result
}

fn stop_on_signals(handle: Arc<Handle>) -> Result<(), RunError> {
    let system = |what| move |error| RunError::System { what, error };
    let mut signals =
        signal_hook::iterator::Signals::new([SIGTERM, SIGINT]).map_err(system("signals"))?;
    let wait = move || {
        let mut received = signals.forever();
        if let Some(signal) = received.next() {
            tracing::info!(signal, "draining and stopping");
            service::stopping();
            handle.shutdown();
        }
        if let Some(signal) = received.next() {
            tracing::warn!(signal, "stopping at once");
            std::process::exit(1);
        }
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(wait)
        .map_err(system("starting a thread"))?;
    Ok(())
}

fn gateway(config: &Config, node: &Node) -> Result<Box<dyn Gateway>, RunError> {
    let gateway = match (&config.ros1, &config.ros2) {
        (Some(ros1), _) => start_ros1(ros1, config, node)?,
        (None, Some(ros2)) => start_ros2(ros2, config, node)?,
        (None, None) => None,
    };
    Ok(gateway.unwrap_or_else(|| Box::new(NoGateway)))
}

type Started = Result<Option<Box<dyn Gateway>>, RunError>;

#[cfg(feature = "ros1")]
fn start_ros1(ros1: &Ros1Config, config: &Config, node: &Node) -> Started {
    use tautline_gateway::ros1::{Ros1, Ros1Options};
    let options = Ros1Options {
        master_uri: ros1.master.clone(),
        host: ros1.host.clone(),
        node_name: ros1.node_name.clone(),
        tautline_name: config.name.clone(),
        max_message: config.limits.max_message,
        installed: ros1.installed.clone(),
    };
    let started = Ros1::start(options, node.selector(), node.events());
    started.map(|g| Some(Box::new(g) as _)).map_err(|error| RunError::Gateway(error.to_string()))
}

#[cfg(not(feature = "ros1"))]
fn start_ros1(_: &Ros1Config, _: &Config, _: &Node) -> Started {
    Ok(None)
}

#[cfg(feature = "ros2")]
fn start_ros2(ros2: &Ros2Config, config: &Config, node: &Node) -> Started {
    use tautline_gateway::ros2::{Range, Ros2, Ros2Options};
    use tautline_gateway::types::installed::Installed;
    let options = Ros2Options {
        domain: ros2.domain,
        range: if ros2.localhost { Range::Loopback } else { Range::Machine },
        node_name: ros2.node_name.clone(),
        tautline_name: config.name.clone(),
        max_message: config.limits.max_message,
        installed: Installed::new(ros2.definitions.clone()),
    };
    let started = Ros2::start(options, node.selector(), node.events());
    started.map(|g| Some(Box::new(g) as _)).map_err(|error| RunError::Gateway(error.to_string()))
}

#[cfg(not(feature = "ros2"))]
fn start_ros2(_: &Ros2Config, _: &Config, _: &Node) -> Started {
    let text = "this program was built without ROS 2 (feature ros2)";
    Err(RunError::Gateway(text.into()))
}

/// A node without middleware of its own.
struct NoGateway;

impl Gateway for NoGateway {
    fn handle(&self, _command: Command) {}

    fn status(&self) -> GatewayStatus {
        GatewayStatus { kind: crate::report::NO_GATEWAY, ..GatewayStatus::default() }
    }

    fn shutdown(self: Box<Self>) {}
}
