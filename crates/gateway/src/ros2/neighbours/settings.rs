// SPDX-License-Identifier: Apache-2.0
//! Settings of Fast DDS under which our participant cannot see nodes. Programs of one robot mostly
//! share their environment, so the daemon's own settings hint at those of the nodes.

use super::DiscoveryRange;

/// Transports of Fast DDS with data over UDP and IPv4, like those of our participant.
const VISIBLE: [&str; 2] = ["DEFAULT", "UDPv4"];

/// Describes why nodes in this environment are not seen, and what to set; empty if they are seen. In the
/// range LOCALHOST, ROS 2 replaces the transports by those that we have.
pub fn hidden_nodes_trouble(
    range: DiscoveryRange,
    variable: impl Fn(&str) -> Option<String>,
) -> String {
    let given = |name| variable(name).filter(|value| !value.is_empty());
    let mut texts = Vec::new();
    if let Some(server) = given("ROS_DISCOVERY_SERVER") {
        texts.push(format!(
            "nodes with ROS_DISCOVERY_SERVER={server} are not seen: start them without it"
        ));
    }
    let transports = given("FASTDDS_BUILTIN_TRANSPORTS");
    // Options may follow after a question mark.
    let is_hidden = |it: &String| !VISIBLE.contains(&it.split('?').next().unwrap_or_default());
    if let Some(transports) =
        transports.filter(is_hidden).filter(|_| range == DiscoveryRange::Machine)
    {
        texts.push(format!(
            "nodes with FASTDDS_BUILTIN_TRANSPORTS={transports} are not seen: set it to UDPv4 or \
             DEFAULT"
        ));
    }
    texts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting_found(name: &str, value: &str) -> String {
        hidden_nodes_trouble(DiscoveryRange::Machine, |asked| {
            (asked == name).then(|| value.to_owned())
        })
    }

    #[test]
    fn settings_that_hide_nodes_are_reported_with_a_remedy() {
        let text = setting_found("ROS_DISCOVERY_SERVER", "10.0.0.1:11811");
        assert!(
            text.contains("ROS_DISCOVERY_SERVER=10.0.0.1:11811") && text.contains("without it")
        );
        for transports in ["LARGE_DATA", "SHM", "DEFAULTv6", "LARGE_DATA?max_msg_size=1MB"] {
            let text = setting_found("FASTDDS_BUILTIN_TRANSPORTS", transports);
            assert!(text.contains(transports) && text.contains("UDPv4 or DEFAULT"), "{text}");
            let local = |asked: &str| {
                (asked == "FASTDDS_BUILTIN_TRANSPORTS").then(|| transports.to_owned())
            };
            assert_eq!(hidden_nodes_trouble(DiscoveryRange::Loopback, local), "");
        }
        for transports in ["DEFAULT", "UDPv4", ""] {
            assert_eq!(setting_found("FASTDDS_BUILTIN_TRANSPORTS", transports), "");
        }
    }
}
