// SPDX-License-Identifier: Apache-2.0
//! A look at a master from outside a gateway, for `tautline doctor`. It registers nothing.

use super::master::{Master, OwnNode, Role, Snapshot};
use super::stand_ins::is_stand_in;
use super::xmlrpc::Endpoint;
use std::collections::BTreeSet;

/// Maximum number of nodes whose addresses are requested.
const MAX_NODES: usize = 128;

/// The nodes at a master, each with its address (`http://HOST:PORT/`), or why the master gave none.
pub type Nodes = Vec<(String, Result<String, String>)>;

/// Asks the master at `http://HOST:PORT` for its nodes. Each call takes at most three seconds.
pub fn nodes_of(master: &str) -> Result<Nodes, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let endpoint = Endpoint::parse(master).map_err(|error| error.to_string())?;
    // This name suffices: no call here changes anything.
    let name = "/tautline_doctor".to_owned();
    let own = OwnNode { name, uri: String::new(), service_uri: String::new() };
    let master = Master::new(endpoint, own);
    runtime.block_on(async {
        let snapshot = master.poll().await.map_err(|error| error.to_string())?;
        let names = local_nodes(&snapshot);
        let mut nodes = Vec::new();
        for name in names.into_iter().take(MAX_NODES) {
            let uri = master.lookup_node(name).await.map_err(|error| error.to_string());
            nodes.push((name.clone(), uri));
        }
        Ok(nodes)
    })
}

/// The nodes of this master. Stand-ins for nodes of peers do not count.
fn local_nodes(snapshot: &Snapshot) -> BTreeSet<&String> {
    let listed = Role::ALL.into_iter().flat_map(|role| snapshot.nodes(role).values()).flatten();
    listed.filter(|name| !is_stand_in(snapshot, name)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::stand_ins::mark_of;
    use super::*;

    #[test]
    fn nodes_of_peers_are_not_counted() {
        let node = |name: &str| BTreeSet::from([name.to_owned()]);
        let shown = "/robot1/laser";
        let mut snapshot = Snapshot::default();
        snapshot.publishers.insert("/robot1/scan".into(), node(shown));
        snapshot.publishers.insert("/goal".into(), node("/planner"));
        snapshot.services.insert(mark_of(shown), node(shown));
        assert_eq!(local_nodes(&snapshot), BTreeSet::from([&"/planner".to_owned()]));
    }
}
