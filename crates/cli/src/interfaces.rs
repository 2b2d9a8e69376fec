// SPDX-License-Identifier: Apache-2.0
//! Which interfaces lead out of this machine.

use std::net::{IpAddr, UdpSocket};
use std::path::Path;

/// Prefixes of the names of interfaces that belong to containers and virtual machines.
const CONTAINER_PREFIXES: [&str; 7] = ["veth", "docker", "br-", "virbr", "cni", "flannel", "lxc"];
/// For IPv4 and IPv6: any local address, and an address for documentation, to which only a default route
/// leads.
const DEFAULT_ROUTE_PROBES: [(&str, &str); 2] =
    [("0.0.0.0:0", "192.0.2.1:9"), ("[::]:0", "[2001:db8::1]:9")];

/// Whether an interface leads to containers or virtual machines of this machine, by its name or
/// because it is a bridge.
pub fn is_container_interface(name: &str) -> bool {
    has_container_interface_name(name)
        || Path::new("/sys/class/net").join(name).join("bridge").exists()
}

/// Whether an interface has a name that container engines and hypervisors give.
pub fn has_container_interface_name(name: &str) -> bool {
    CONTAINER_PREFIXES.iter().any(|it| name.starts_with(it))
}

/// Addresses from which packets leave by the default routes of IPv4 and IPv6.
pub fn addresses_of_default_routes() -> Vec<IpAddr> {
    let address = |(any, elsewhere): (&str, &str)| {
        let probe = UdpSocket::bind(any).ok()?;
        // Connecting a datagram socket looks up the route and sends nothing.
        probe.connect(elsewhere).ok()?;
        probe.local_addr().ok().map(|it| it.ip())
    };
    DEFAULT_ROUTE_PROBES.into_iter().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_of_containers_are_internal() {
        for name in ["docker0", "veth12ab", "br-0af1", "virbr0"] {
            assert!(is_container_interface(name), "{name}");
        }
        for name in ["wlan0", "eth0", "lo", "wg0"] {
            assert!(!is_container_interface(name), "{name}");
        }
    }
}
