// SPDX-License-Identifier: Apache-2.0
//! A look at a master from outside a gateway, for `tautline doctor`. It registers nothing.

use super::master::{Master, OwnNode, Role};
use super::xmlrpc::Endpoint;
use std::collections::BTreeSet;

/// Nodes whose addresses are asked for.
const MAX_NODES: usize = 128;

/// The nodes at a master, each with its address (`http://HOST:PORT/`), or why the master gave none.
pub type Nodes = Vec<(String, Result<String, String>)>;

/// Asks the master at `http://HOST:PORT` for its nodes. Each call takes at most three seconds.
pub fn nodes_of(master: &str) -> Result<Nodes, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let endpoint = Endpoint::parse(master).map_err(|error| error.to_string())?;
    // Only calls that change nothing carry no more than this name.
    let name = "/tautline_doctor".to_owned();
    let own = OwnNode { name, uri: String::new(), service_uri: String::new() };
    let master = Master::new(endpoint, own);
    runtime.block_on(async {
        let snapshot = master.poll().await.map_err(|error| error.to_string())?;
        let listed = Role::ALL.into_iter().flat_map(|role| snapshot.nodes(role).values());
        let names: BTreeSet<&String> = listed.flatten().collect();
        let mut nodes = Vec::new();
        for name in names.into_iter().take(MAX_NODES) {
            let uri = master.lookup_node(name).await.map_err(|error| error.to_string());
            nodes.push((name.clone(), uri));
        }
        Ok(nodes)
    })
}
