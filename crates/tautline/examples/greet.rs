// SPDX-License-Identifier: Apache-2.0
//! The program of docs/how-to/library.md. It runs in two terminals: `greet base`, and `greet robot`.

use std::error::Error;
use std::time::Duration;
use tautline::{Config, Node};

const PATIENCE: Duration = Duration::from_secs(60);

/// Greets the base once it subscribes.
pub fn robot() -> Result<(), Box<dyn Error>> {
    let node = Node::open(Config::parse(
        "{ name: robot, listen: '127.0.0.1:18471', security: none,
           topics: { /greeting: { priority: 200 } },
           peers: { base: '127.0.0.1:18472' } }",
    )?)?;
    let greetings = node.publish("/greeting", "example/Text")?;
    greetings.wait_for_subscriber(PATIENCE);
    greetings.send("hello")?;
    Ok(node.close()?)
}

/// Returns the first greeting.
pub fn base() -> Result<String, Box<dyn Error>> {
    let node = Node::open(Config::parse(
        "{ name: base, listen: '127.0.0.1:18472', security: none,
           peers: { robot: { address: '127.0.0.1:18471', accept: [/greeting] } } }",
    )?)?;
    let message = node.subscribe("/greeting")?.recv_timeout(PATIENCE)?;
    Ok(String::from_utf8(message.payload.to_vec())?)
}

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).as_deref() == Some("robot") {
        return robot();
    }
    println!("base received: {}", base()?);
    Ok(())
}
