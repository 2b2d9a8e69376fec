// SPDX-License-Identifier: Apache-2.0
//! Injection of frames into radios.

use super::encapsulation::{HERE, RadioNumber, UDP_PORT, header};
use crate::rig::namespace::enter;
use anyhow::{Context, Result};
use std::io::ErrorKind;
use std::net::UdpSocket;

/// A sender of frames into any radio.
pub struct Injector {
    socket: UdpSocket,
    packet: Vec<u8>,
}

impl Injector {
    /// Creates an injector for the radios whose packets meet in namespace `air`.
    pub fn new(air: &str) -> Result<Self> {
        let socket = enter(air, || {
            let socket = UdpSocket::bind((HERE, 0))?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        Ok(Self { socket: socket.context("no socket for injection")?, packet: Vec::new() })
    }

    /// Sends a whole frame to a radio. Returns false if the kernel had no buffer space for it.
    pub fn inject(&mut self, radio: RadioNumber, ethernet: &[u8]) -> Result<bool> {
        self.packet.clear();
        self.packet.extend_from_slice(&header(radio));
        self.packet.extend_from_slice(ethernet);
        match self.socket.send_to(&self.packet, (HERE, UDP_PORT)) {
            Ok(_) => Ok(true),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::OutOfMemory) =>
            {
                Ok(false)
            }
            Err(error) => {
                let length = ethernet.len();
                Err(error).with_context(|| format!("cannot inject {length} bytes to radio {radio}"))
            }
        }
    }
}
