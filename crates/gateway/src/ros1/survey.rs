// SPDX-License-Identifier: Apache-2.0
//! A look at the graph of a ROS 1 master.

use super::master::{Master, NodesByName, OwnNode, Snapshot};
use super::stand_ins::is_stand_in;
use super::xmlrpc::Endpoint;
use crate::survey::{Graph, TopicUse};
use std::time::Duration;
use tokio::time::timeout;

/// Time limit of the survey, including the lookup of the master's name.
const PATIENCE: Duration = Duration::from_secs(8);
/// Services that every node has for its loggers.
const OF_LOGGERS: [&str; 2] = ["/get_loggers", "/set_logger_level"];

/// Asks a master for its graph. `caller` is the name under which it is asked; nothing is registered.
/// The nodes in `left_out` (those of Tautline) and stand-ins of peers' nodes do not count.
pub fn survey(master_uri: &str, caller: &str, left_out: &[String]) -> Result<Graph, String> {
    let endpoint = Endpoint::parse(master_uri).map_err(|error| error.to_string())?;
    let own = OwnNode { name: caller.into(), uri: String::new(), service_uri: String::new() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let master = Master::new(endpoint, own);
    let polled = runtime.block_on(async { timeout(PATIENCE, master.poll()).await });
    let drop_master = async move { drop(master) };
    runtime.block_on(drop_master);
    runtime.shutdown_timeout(Duration::ZERO);
    match polled {
        Ok(Ok(snapshot)) => Ok(graph(&snapshot, left_out)),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
    }
}

fn graph(snapshot: &Snapshot, left_out: &[String]) -> Graph {
    let has_others = |nodes: &std::collections::BTreeSet<String>| {
        nodes.iter().any(|it| !left_out.contains(it) && !is_stand_in(snapshot, it))
    };
    let used = |all: &NodesByName| -> Vec<String> {
        let others = all.iter().filter(|(_, nodes)| has_others(nodes));
        others.map(|(name, _)| name.clone()).collect()
    };
    let mut graph = Graph::default();
    for name in used(&snapshot.publishers) {
        graph.topics.entry(name).or_default().published = true;
    }
    for name in used(&snapshot.subscribers) {
        graph.topics.entry(name).or_default().subscribed = true;
    }
    for (name, TopicUse { type_name, .. }) in &mut graph.topics {
        let known = snapshot.types.as_ref().and_then(|types| types.get(name));
        // A subscriber of any type registers as "*".
        *type_name = known.filter(|it| *it != "*").cloned().unwrap_or_default();
    }
    let is_of_loggers = |name: &String| OF_LOGGERS.iter().any(|suffix| name.ends_with(suffix));
    let services = used(&snapshot.services).into_iter();
    graph.services = services.filter(|name| !is_of_loggers(name)).collect();
    graph
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn nodes(all: &[(&str, &[&str])]) -> NodesByName {
        let entry = |(name, nodes): &(&str, &[&str])| {
            let nodes: BTreeSet<String> = nodes.iter().map(|it| it.to_string()).collect();
            (name.to_string(), nodes)
        };
        all.iter().map(entry).collect()
    }

    #[test]
    fn nodes_of_tautline_and_services_of_loggers_do_not_count() {
        let types = [("/scan", "sensor_msgs/LaserScan"), ("/any", "*")];
        let types = types.map(|(name, type_name)| (name.to_owned(), type_name.to_owned()));
        let snapshot = Snapshot {
            publishers: nodes(&[("/scan", &["/laser"]), ("/r1/scan", &["/r1/laser"])]),
            subscribers: nodes(&[("/scan", &["/tautline"]), ("/any", &["/x", "/tautline"])]),
            services: nodes(&[
                ("/laser/get_loggers", &["/laser"]),
                ("/set_mode", &["/laser"]),
                ("/r1/set_mode", &["/tautline"]),
                ("/r1/laser/tautline_stand_in", &["/r1/laser"]),
            ]),
            types: Some(types.into()),
        };
        let graph = graph(&snapshot, &["/tautline".into()]);
        let scan = &graph.topics["/scan"];
        assert!(scan.published && !scan.subscribed && scan.type_name == "sensor_msgs/LaserScan");
        let any = &graph.topics["/any"];
        assert!(!any.published && any.subscribed && any.type_name.is_empty());
        assert_eq!(graph.topics.len(), 2);
        assert_eq!(graph.services, ["/set_mode".to_owned()].into());
    }

    #[test]
    fn a_master_that_is_absent_is_an_error() {
        let port =
            std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let uri = format!("http://127.0.0.1:{port}");
        let error = survey(&uri, "/tautline_pair", &[]).unwrap_err();
        assert!(error.contains("127.0.0.1"), "{error}");
        assert!(survey("ftp://x", "/tautline_pair", &[]).is_err());
    }
}
