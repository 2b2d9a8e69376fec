// SPDX-License-Identifier: Apache-2.0
//! Redirects calls inside Cyclone DDS to src/hooks.rs, src/audience.rs, src/automatic.rs,
//! src/local.rs, src/burst.rs and src/received.rs. A program that links this crate needs the same:
//! its build.rs is a link to this file, which `cargo package` replaces by a copy.

const HOOKED: [&str; 14] = [
    "ddsi_entidx_enum_next_max",
    "ddsi_match_proxy_reader_with_writers",
    "ddsi_match_reader_with_proxy_writers",
    "ddsi_match_writer_with_proxy_readers",
    "ddsi_participant_get_pmd_interval",
    "ddsi_qos_match_p",
    "ddsi_type_ref_proxy",
    "ddsi_xmsg_addpar_sentinel",
    "ddsi_xmsg_addpar_sentinel_ifparam",
    "ddsi_xmsg_submsg_setnext",
    "ddsi_xqos_mergein_missing",
    "ddsrt_bind",
    "ddsrt_recvmsg",
    "ddsrt_sendmsg",
];

fn main() {
    for function in HOOKED {
        println!("cargo::rustc-link-arg=-Wl,--wrap={function}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
