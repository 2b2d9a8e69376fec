// SPDX-License-Identifier: Apache-2.0
//! What the system shows of Fast DDS on this machine, read from /proc and /dev/shm.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// The default port of a discovery server of Fast DDS.
pub const DISCOVERY_SERVER_PORT: u16 = 11811;

/// The port of announcements in a domain (RTPS 2.5, 9.6.2.3).
pub fn discovery_port(domain: u32) -> u16 {
    u16::try_from(7400 + 250 * domain).unwrap_or(u16::MAX)
}

/// The processes that announce themselves in shared memory. Only participants without another
/// transport do: they hold a lock on a file that has the number of the port.
pub fn shared_memory_processes(port: u16) -> Vec<u32> {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let files = ["fastdds", "fastrtps"].map(|name| format!("/dev/shm/{name}_port{port}_sl"));
    let numbers = files.iter().filter_map(|file| fs::metadata(file).ok()).map(|it| it.ino());
    let all = numbers.flat_map(|number| holders(&locks, number));
    all.filter(|process| !is_in_other_network_namespace(*process)).collect()
}

/// Whether a process is known to be in another network namespace. The shared memory may be common.
fn is_in_other_network_namespace(process: u32) -> bool {
    let network = |process: &str| fs::read_link(format!("/proc/{process}/ns/net"));
    match (network("self"), network(&process.to_string())) {
        (Ok(own), Ok(other)) => own != other,
        // Only processes of the same user show their namespaces.
        _ => false,
    }
}

/// The processes that hold a lock on the file with this number (`man 5 proc_locks`).
fn holders(locks: &str, number: u64) -> Vec<u32> {
    let holder = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, process, file, ..] = fields.as_slice() else { return None };
        let is_it = file.rsplit(':').next()?.parse() == Ok(number);
        process.parse().ok().filter(|_| is_it)
    };
    locks.lines().filter_map(holder).collect()
}

/// Whether a program of this network has the default port of a discovery server.
pub fn has_discovery_server() -> bool {
    let files = ["/proc/self/net/udp", "/proc/self/net/udp6"];
    let mut tables = files.iter().filter_map(|file| fs::read_to_string(file).ok());
    tables.any(|table| is_bound(&table, DISCOVERY_SERVER_PORT))
}

/// Whether a table of UDP sockets has this local port (`man 5 proc_net`).
fn is_bound(table: &str, port: u16) -> bool {
    let ending = format!(":{port:04X}");
    let mut locals = table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1));
    locals.any(|local| local.ends_with(&ending))
}

/// The numbers of interfaces with an IPv6 address.
pub fn interfaces_v6() -> Vec<u32> {
    let table = fs::read_to_string("/proc/self/net/if_inet6").unwrap_or_default();
    let number = |line: &str| u32::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    let mut all: Vec<_> = table.lines().filter_map(number).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The command of a process in brackets; empty if it is not known.
pub fn command(process: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    let shown = name.trim_end().replace(|c: char| c.is_control(), "?");
    if shown.is_empty() { shown } else { format!(" ({shown})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_and_ports_are_found_in_the_tables_of_the_kernel() {
        let locks = "1: POSIX  ADVISORY  READ 5 08:01:7 128 128\n\
                     2: FLOCK  ADVISORY  WRITE 18307 00:1a:77 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 99 00:1a:77 0 EOF\n\
                     3: FLOCK  ADVISORY  READ 18557 00:1a:78 0 EOF\nodd\n";
        assert_eq!(holders(locks, 77), [18307]);
        assert!(holders(locks, 7).is_empty());
        let table = "  sl  local_address rem_address\n 1: 0100007F:2E23 00000000:0000 07\n\n";
        assert!(is_bound(table, DISCOVERY_SERVER_PORT) && !is_bound(table, 0x2e2));
        assert_eq!(discovery_port(0), 7400);
    }
}
