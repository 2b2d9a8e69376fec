// SPDX-License-Identifier: Apache-2.0
//! What the program that launches the daemon (`roslaunch`, `ros2 launch`) says about its node.

/// Names and addresses on the command line. The file overrides them, and they override the environment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Launch {
    /// ROS name of the node without its namespace (`__name:=`, `__node:=`).
    pub name: Option<String>,
    /// Namespace of the node (`__ns:=`).
    pub namespace: Option<String>,
    /// URI of the ROS master (`__master:=`).
    pub master: Option<String>,
    /// Name of this machine in ROS 1 (`__hostname:=`).
    pub hostname: Option<String>,
    /// Address of this machine in ROS 1 (`__ip:=`).
    pub ip: Option<String>,
}

impl Launch {
    /// Returns the full name of the node, or `None` if the launcher gives neither name nor namespace. `outer`
    /// is the namespace from the environment (ROS_NAMESPACE); `default` is the name without a launcher.
    pub fn node_name(&self, outer: Option<&str>, default: &str) -> Option<String> {
        if self.name.is_none() && self.namespace.is_none() {
            return None;
        }
        let namespace = self.namespace.as_deref().or(outer).unwrap_or_default();
        let name = self.name.as_deref().unwrap_or(default).trim_start_matches('/');
        match namespace.trim_matches('/') {
            "" => Some(format!("/{name}")),
            namespace => Some(format!("/{namespace}/{name}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launched_name_includes_its_namespace() {
        let launch = |name: &str, namespace: &str| {
            let given = |text: &str| Some(text.to_owned()).filter(|it| !it.is_empty());
            Launch { name: given(name), namespace: given(namespace), ..Launch::default() }
        };
        for (name, namespace, outer, expected) in [
            ("", "", Some("/r1"), None),
            ("link", "", None, Some("/link")),
            ("link", "", Some("r1/"), Some("/r1/link")),
            ("link", "/a/b", Some("/r1"), Some("/a/b/link")),
            ("", "/a", None, Some("/a/tautline")),
        ] {
            let found = launch(name, namespace).node_name(outer, "/tautline");
            assert_eq!(found.as_deref(), expected, "{name} {namespace}");
        }
    }
}
