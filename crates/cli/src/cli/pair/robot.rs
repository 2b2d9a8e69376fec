// SPDX-License-Identifier: Apache-2.0
//! The robot: it finds the base, and proves the code.

use super::channel::{self, Channel};
use super::console::Console;
use super::search;
use crate::cli::Failure;
use rand_core::OsRng;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};
use tautline::config::kind::Kind;
use tautline::config::value::{Address, Value};
use tautline_cli::pairing::exchange::{Exchange, Role};
use tautline_cli::pairing::wire::{Frame, Refusal, WireError};
use tautline_cli::pairing::{Code, MAX_ADDRESSES, STRANGER_TIME, VERSION};

/// Time limit of a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A base that has proved the code.
pub struct ProvedBase {
    pub channel: Channel,
    pub name: String,
    /// The base's host as it was given on the command line; `None` if a search found the base.
    pub host: Option<String>,
    pub address: SocketAddr,
}

/// A base to try.
struct Candidate {
    name: Option<String>,
    host: Option<String>,
    addresses: Vec<SocketAddr>,
}

/// Meets the base that waits for this code.
pub fn connect_to_base(
    code: Code,
    own_name: &str,
    at: Option<&str>,
    port: u16,
    console: Console,
) -> Result<ProvedBase, Failure> {
    let candidates = match at {
        Some(at) => vec![base_at(at, port)?],
        None => {
            let bases = search::find_bases(code, console)?.into_iter();
            let candidate = |it: search::Base| Candidate {
                name: Some(it.name),
                host: None,
                addresses: it.addresses,
            };
            bases.map(candidate).collect()
        }
    };
    let mut failures = Vec::new();
    for candidate in candidates {
        match try_base(code, own_name, &candidate, console) {
            Ok(proved) => return Ok(proved),
            Err(text) => failures.push(text),
        }
    }
    Err(Failure::new(format!("{}\nNothing was written.", failures.join("\n"))))
}

/// The base at `HOST[:PORT]`.
fn base_at(at: &str, port: u16) -> Result<Candidate, Failure> {
    let Ok(Value::Endpoint(Address { host, port: own_port })) = Kind::Endpoint.parse(at) else {
        let found = tautline_gateway::plain::plain(at, 80);
        let allowed = Kind::Endpoint.allowed();
        return Err(Failure::new(format!("--at: found '{found}'; allowed: {allowed}")));
    };
    let port = own_port.unwrap_or(port);
    let resolved = (host.as_str(), port).to_socket_addrs();
    let addresses = resolved.map_err(|error| Failure::new(format!("--at {host}: {error}")))?;
    let addresses = addresses.take(MAX_ADDRESSES).collect();
    Ok(Candidate { name: None, host: Some(host), addresses })
}

fn try_base(
    code: Code,
    own_name: &str,
    base: &Candidate,
    console: Console,
) -> Result<ProvedBase, String> {
    let mut trouble = format!("{}: no address", base.host.as_deref().unwrap_or("the base"));
    for &address in &base.addresses {
        console.progress(&format!("connecting to {address} ..."));
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => {
                let (channel, name) = prove(stream, code, own_name, base, address)?;
                return Ok(ProvedBase { channel, name, host: base.host.clone(), address });
            }
            Err(error) => {
                trouble = format!(
                    "{address}: {error}. Is 'tautline pair' still running at the base, and does no \
                     firewall drop TCP {}?",
                    address.port()
                );
            }
        }
    }
    Err(trouble)
}

/// Runs the key agreement; this end sends its proof first.
fn prove(
    stream: TcpStream,
    code: Code,
    own_name: &str,
    base: &Candidate,
    address: SocketAddr,
) -> Result<(Channel, String), String> {
    let shown = base.name.as_deref().map_or(String::new(), |name| format!("'{name}' at "));
    let failed = |error: &dyn ToString| {
        format!("the base {shown}{address} ended the pairing: {}", error.to_string())
    };
    channel::configure_stream(&stream).map_err(|error| failed(&error))?;
    let (exchange, hello) = Exchange::start(Role::Robot, code, own_name, &mut OsRng);
    let read =
        || channel::read_exchange_frame(&stream, Instant::now() + STRANGER_TIME + CONNECT_TIMEOUT);
    channel::write_frame(&stream, &hello).map_err(|error| failed(&error))?;
    let answer = read().map_err(|error| failed(&error))?;
    let refused = |refusal| format!("the base {shown}{address} {}", describe_refusal(refusal));
    if let Ok(Frame::Refuse(refusal)) = Frame::parse(&answer) {
        return Err(refused(refusal));
    }
    let (keys, other) = exchange.finish(&answer).map_err(|error| failed(&error))?;
    channel::write_frame(&stream, &keys.proof()).map_err(|error| failed(&error))?;
    let answer = read().map_err(|error| failed(&error))?;
    match Frame::parse(&answer) {
        Ok(Frame::Confirm(proof)) if keys.is_proved_by(&proof) => {
            Ok((Channel::new(stream, keys), other.name))
        }
        Ok(Frame::Confirm(_)) => Err(format!(
            "{address} answered and does not know the code: it is another base, or somebody between \
             the two machines"
        )),
        Ok(Frame::Refuse(refusal)) => Err(refused(refusal)),
        Err(error @ WireError::Version(_)) => Err(failed(&error)),
        _ => Err(failed(&format!("a frame that version {VERSION} does not expect"))),
    }
}

/// Describes a refusal, in words that follow the name of the base.
fn describe_refusal(refusal: Refusal) -> String {
    match refusal {
        Refusal::WrongCode { left: 0 } => {
            "refused a wrong code, the last one that it allows, and has ended the pairing: it needs a \
             new code"
                .into()
        }
        Refusal::WrongCode { left } => {
            let tries = if left == 1 { "one more try" } else { &format!("{left} more tries") };
            format!(
                "refused a wrong code, and still waits for the right one: it allows {tries}. Is the \
                 code typed as the base shows it? If it is, somebody is between the two machines"
            )
        }
        Refusal::Ended => {
            "has ended the pairing, with another robot or after too many wrong codes; run 'tautline \
             pair' there again for a new code"
                .into()
        }
        Refusal::SameName => {
            "has the same name as this machine; give one of them another one with --name".into()
        }
    }
}
