// SPDX-License-Identifier: Apache-2.0
//! Tautline as a library: a [`Node`] inside a program, which exchanges messages, calls and responses
//! with nodes of other machines over bad radio links, the important ones on time. The other nodes may
//! be programs as well, or daemons (`tautline run`) with ROS 1 or ROS 2.
//!
//! ```
//! use std::time::Duration;
//! use tautline::{Config, Node};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let sockets = [std::net::UdpSocket::bind("127.0.0.1:0")?, std::net::UdpSocket::bind("127.0.0.1:0")?];
//! # let [here, there] = [sockets[0].local_addr()?.port(), sockets[1].local_addr()?.port()];
//! # drop(sockets);
//! let robot = Node::open(Config::parse(&format!("
//!     name: robot
//!     listen: 127.0.0.1:{here}
//!     security: none                  # or key: robot.key, made by: tautline keygen robot.key
//!     topics: {{ /greeting: {{ priority: 200 }} }}
//!     peers: {{ base: 127.0.0.1:{there} }}
//! "))?)?;
//! let base = Node::open(Config::parse(&format!("
//!     name: base
//!     listen: 127.0.0.1:{there}
//!     security: none
//!     peers: {{ robot: {{ address: 127.0.0.1:{here}, accept: [/greeting] }} }}
//! "))?)?;
//!
//! let greetings = base.subscribe("/greeting")?;
//! let publisher = robot.publish("/greeting", "example/Text")?;
//! assert!(publisher.wait_for_subscriber(Duration::from_secs(60)));
//! publisher.send("hello")?;
//! let message = greetings.recv_timeout(Duration::from_secs(60))?;
//! assert_eq!(message.payload, "hello");
//! # Ok(())
//! # }
//! ```
//!
//! Two processes with keys: `examples/hello.rs`. Messages are opaque bytes with the name of a type. A
//! daemon publishes them to its ROS if they are in the serialization of a ROS, with a type that has a
//! definition ([`MessageType::of_ros`]); a program gets from it what its nodes publish, as the bytes of
//! that ROS. The format of the configuration is that of the daemon
//! (`docs/reference/configuration.md`): what is sent, accepted and allowed is decided there.
//!
//! | to | use |
//! |---|---|
//! | exchange messages | [`Node::publish`], [`Node::subscribe`] |
//! | call and serve | [`Node::call`], [`Node::serve`] |
//! | follow peers and links | [`Node::events`], [`Node::links`], [`Node::status`], [`Handle::watch_links`] |
//! | run a node with a gateway of one's own, as the daemon does | [`DataPlane`] |

pub mod accounts;
pub mod audit;
mod budgets;
mod clock;
mod codec;
pub mod columns;
pub mod config;
mod data_plane;
mod diagnostics;
mod driver;
mod error;
mod inlet;
pub mod keys;
pub mod limits;
pub mod notices;
pub mod paths;
pub mod planned;
mod program;
mod quota;
pub mod rates;
pub mod reasons;
mod recent;
pub mod reload;
mod report;
mod route;
mod selection;
pub mod status;
pub mod sys;
mod topics;
pub mod treatment;
mod udp;

pub use config::Config;
pub use data_plane::{DataPlane, Handle};
pub use driver::{GROUP_V4, GROUP_V6, Settings, Watchdog};
pub use error::{AskError, OpenError, RunError, SystemError};
pub use program::{
    CLOSE_TIMEOUT, CallError, CloseError, Events, Message, MessageType, Node, PublishError,
    Publisher, Receiver, RecvError, Request, SendError, ServeError, Server, Subscription,
};
pub use tautline_gateway::types::definition::DefinitionError;
pub use tautline_gateway::{Qos, Source};
pub use topics::exports::channel::link_policy;
pub use udp::RECEIVE_BUFFER_BYTES;
