// SPDX-License-Identifier: Apache-2.0
//! A survey of the nodes of a DDS domain on this machine.

use super::endpoints::{Endpoints, Role};
use super::names;
use crate::lock::lock;
use crate::survey::{Graph, TopicUse};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tautline_dds::{DiscoveryRange, Participant};

/// Maximum number of tracked endpoints.
const MAX_ENDPOINTS: usize = 16_384;
/// Last levels of services that every node has, for its parameters and their events.
const NODE_SERVICES: [&str; 9] = [
    "describe_parameters",
    "get_parameter_types",
    "get_parameters",
    "list_parameters",
    "set_parameters",
    "set_parameters_atomically",
    "get_type_description",
    "get_logger_levels",
    "set_logger_levels",
];
/// Interval between two checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Watches a domain for a while. It ends earlier if nodes were found and none has appeared for
/// `quiet`.
pub fn survey(
    domain: u32,
    range: DiscoveryRange,
    patience: Duration,
    quiet: Duration,
) -> Result<Graph, String> {
    let user_data = names::participant_user_data("pairing");
    let participant = Participant::new(domain, range, user_data.as_bytes());
    let participant = participant.map_err(|error| error.to_string())?;
    let found = Arc::new(Mutex::new(Found::default()));
    let keep = found.clone();
    let watching = participant.discover(move |event| {
        let mut found = lock(&keep);
        let changes = [found.topics.on_event(&event), found.services.on_event(&event)];
        if changes.iter().any(Option::is_some) {
            found.last = Some(Instant::now());
        }
    });
    watching.map_err(|error| error.to_string())?;
    let end = Instant::now() + patience;
    while Instant::now() < end {
        std::thread::sleep(CHECK_INTERVAL);
        if lock(&found).last.is_some_and(|last| last.elapsed() >= quiet) {
            break;
        }
    }
    drop(participant);
    let found = lock(&found);
    Ok(graph(&found.topics, &found.services))
}

struct Found {
    topics: Endpoints,
    services: Endpoints,
    last: Option<Instant>,
}

impl Default for Found {
    fn default() -> Self {
        let [topics, services] = [false, true].map(|it| Endpoints::new(it, MAX_ENDPOINTS));
        Self { topics, services, last: None }
    }
}

fn graph(topics: &Endpoints, services: &Endpoints) -> Graph {
    let mut graph = Graph::default();
    for name in topics.names() {
        let types = |role| {
            topics
                .keyless_endpoints(name, role)
                .filter_map(|(_, it)| names::ros_type(&it.type_name))
        };
        let (publishers, subscribers): (Vec<_>, Vec<_>) =
            (types(Role::Publisher).collect(), types(Role::Subscriber).collect());
        let Some(type_name) = publishers.first().or(subscribers.first()).cloned() else { continue };
        let (published, subscribed) = (!publishers.is_empty(), !subscribers.is_empty());
        graph.topics.insert(name.into(), TopicUse { type_name, published, subscribed });
    }
    let is_of_node = |name: &&str| {
        let last = name.rsplit('/').next().unwrap_or_default();
        NODE_SERVICES.contains(&last)
    };
    let served =
        |name: &&str| services.keyless_endpoints(name, Role::RequestReader).next().is_some();
    let names = services.names().filter(|name| !is_of_node(name) && served(name));
    graph.services = names.map(str::to_owned).collect();
    graph
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline_dds::{DiscoveryEvent, Endpoint, Qos as Dds};

    fn endpoint(number: u8, topic: &str, type_name: &str) -> Endpoint {
        let mut guid = [0; 16];
        guid[0] = number;
        let (topic, type_name) = (topic.into(), type_name.into());
        Endpoint { guid, topic, type_name, keyless: true, qos: Dds::default() }
    }

    #[test]
    fn topics_and_services_have_their_ros_names() {
        let mut found = Found::default();
        let twist = "geometry_msgs::msg::dds_::Twist_";
        let mut tautline = endpoint(1, "rt/other", twist);
        tautline.qos.user_data = names::endpoint_user_data("", "base").into_bytes();
        for event in [
            DiscoveryEvent::Writer(tautline),
            DiscoveryEvent::Reader(endpoint(2, "rt/cmd_vel", twist)),
            DiscoveryEvent::Writer(endpoint(3, "rt/odom", "nav_msgs::msg::dds_::Odometry_")),
            DiscoveryEvent::Reader(endpoint(
                4,
                "rq/set_modeRequest",
                "std_srvs::srv::dds_::SetBool_Request_",
            )),
            DiscoveryEvent::Reader(endpoint(
                5,
                "rq/n/get_parametersRequest",
                "x::srv::dds_::G_Request_",
            )),
            DiscoveryEvent::Writer(endpoint(6, "rq/calledRequest", "x::srv::dds_::G_Request_")),
        ] {
            found.topics.on_event(&event);
            found.services.on_event(&event);
        }
        let graph = graph(&found.topics, &found.services);
        let command = &graph.topics["/cmd_vel"];
        assert_eq!(command.type_name, "geometry_msgs/msg/Twist");
        assert!(command.subscribed && !command.published && graph.topics["/odom"].published);
        assert_eq!(graph.topics.len(), 2);
        assert_eq!(graph.services, ["/set_mode".to_owned()].into());
    }
}
