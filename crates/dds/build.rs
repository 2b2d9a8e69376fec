// SPDX-License-Identifier: Apache-2.0
//! Leads calls inside Cyclone DDS to src/hooks.rs and src/local.rs. A program that links this crate has to do
//! the same: its build.rs includes this one.

const HOOKED: [&str; 3] =
    ["ddsi_xmsg_addpar_sentinel", "ddsi_xmsg_addpar_sentinel_ifparam", "ddsrt_bind"];

fn main() {
    for function in HOOKED {
        println!("cargo::rustc-link-arg=-Wl,--wrap={function}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
