// SPDX-License-Identifier: Apache-2.0
//! The planted faults.

use super::scene::{BASE, Scene};
use std::os::unix::fs::PermissionsExt;
use tautline::status::{ClockReport, Direction, LinesReport, WaitingReport};

/// A fault, and what doctor has to find.
pub struct Row {
    pub name: &'static str,
    pub plant: fn(&mut Scene),
    /// The check that finds it.
    pub check: &'static str,
    /// Texts of its finding and fix.
    pub texts: &'static [&'static str],
    /// Other checks that the fault concerns as well.
    pub also: &'static [&'static str],
}

const fn row(
    name: &'static str,
    check: &'static str,
    texts: &'static [&'static str],
    plant: fn(&mut Scene),
) -> Row {
    Row { name, plant, check, texts, also: &[] }
}

impl Row {
    const fn with_further_finding(mut self, also: &'static [&'static str]) -> Self {
        self.also = also;
        self
    }
}

const UNIT: &str = "/etc/systemd/system/tautline.service";

fn plant_unit(scene: &Scene, lines: &str) {
    let file = scene.place.path("robot1.yaml");
    let command = format!("ExecStart=/usr/bin/tautline run {}", file.display());
    scene.plant(UNIT, &format!("[Service]\nUser=root\n{command}\n{lines}\n"));
    scene.plant("/etc/systemd/system/multi-user.target.wants/tautline.service", "");
    scene.program("systemctl", "active");
}

fn replace(scene: &mut Scene, from: &str, to: &str) {
    assert!(scene.file.contains(from), "{from}: {}", scene.file);
    scene.file = scene.file.replace(from, to);
}

fn notice(scene: &mut Scene, text: &str) {
    scene.change_status(|it| it.notices.push(text.into()));
}

fn hide_node_with(scene: &mut Scene, variable: &str, value: &str) {
    scene.file = scene.ros2_file();
    scene.rclpy(&[(variable, value)], false);
}

/// Adds an interface, with an address or without, until the row ends.
fn add_interface(scene: &mut Scene, name: &str, address: Option<&str>) {
    let other = format!("{name}end");
    scene.robot.ip(&format!("link add {name} type veth peer name {other}"));
    scene.undo.push(format!("ip link delete {name}"));
    for end in [name, &other] {
        scene.robot.ip(&format!("link set {end} addrgenmode none"));
        scene.robot.ip(&format!("link set {end} up"));
    }
    if let Some(address) = address {
        scene.robot.ip(&format!("address add {address} dev {name}"));
    }
}

pub const ROWS: &[Row] = &[
    row("a mistake in the file", "file", &["topicz", "tautline check"], |scene| {
        scene.lines("topicz: {}");
        scene.status = None;
    })
    .with_further_finding(&["daemon"]),
    row("a warning of the file", "file", &["eth99", "edit line"], |scene| {
        scene.lines("radios: { eth99: {} }");
    })
    .with_further_finding(&["link-down"]),
    row("two robots under one prefix", "file", &["'base' on line 4", "of its own"], |scene| {
        // As written by hand: `pair` refuses it.
        let key = "cHVibGljIGtleSBvZiBiYXNlLCBhbiBleGFtcGxlLi4=";
        let second = format!("prefix: /base }}, base-2: {{ key: {key}, prefix: /base }} }}");
        replace(scene, "prefix: /base } }", &second);
    }),
    row("a key that others can read", "key-file", &["644", "chmod 600"], |scene| {
        let mode = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(scene.key_file(), mode).unwrap();
    }),
    row("a key of another user", "key-file", &["65534", "chown root"], |scene| {
        plant_unit(scene, "");
        std::os::unix::fs::chown(scene.key_file(), Some(65_534), None).unwrap();
    }),
    row("no key", "key-file", &["does not exist", "tautline keygen"], |scene| {
        scene.lines("key: other.key");
    }),
    row("a unit that failed", "unit", &["has failed", "journalctl -u tautline"], |scene| {
        plant_unit(scene, "");
        scene.program("systemctl", "failed");
    }),
    row("no daemon", "daemon", &["no daemon answers at", "tautline run"], |scene| {
        scene.status = None;
    }),
    row("an old daemon", "versions", &["0.0.1", "systemctl restart tautline"], |scene| {
        scene.change_status(|it| it.version = "0.0.1".into());
    }),
    row("a peer of another version", "versions", &["version 7", "same release"], |scene| {
        notice(
            scene,
            "a node at 10.77.0.2 has protocol version 7, 'robot1' has 0; run the same release on both",
        );
    }),
    row("no ROS", "ros", &["no ROS runs", "ros2 launch"], |scene| {
        scene.at_base = true;
        scene.file = scene.ros2_file().replace(BASE, "10.77.0.1");
    })
    // Other tests of this machine may have a ROS in networks of their own.
    .with_further_finding(&["ros-container"]),
    row("no master", "ros1-master", &["127.0.0.1:11311 does not answer", "roscore"], |scene| {
        scene.at_base = true;
        replace(scene, BASE, "10.77.0.1");
    })
    .with_further_finding(&["ros-container"]),
    row(
        "a file for the other ROS",
        "ros",
        &["ROS 1 runs", "set ros1 to { master: ", "remove ros2"],
        |scene| {
            scene.file = scene.ros2_file();
        },
    ),
    row("two kinds of ROS", "two-ros", &["domain 0", "second daemon"], |scene| {
        scene.rclpy(&[], true);
    }),
    row("ROS in a container", "ros-container", &["python", "--network host"], |scene| {
        scene.file = scene.ros2_file().replace(BASE, "10.77.0.1");
        scene.rclpy(&[], false);
        scene.at_base = true;
    })
    .with_further_finding(&["ros"]),
    row(
        "a wrong address of the master",
        "ros1-master",
        &["11399", "set ros1.master to http://localhost:11311"],
        |scene| {
            replace(scene, "127.0.0.1:11311", "127.0.0.1:11399");
            scene.change_status(|it| it.gateways[0].location = "http://127.0.0.1:11399".into());
        },
    ),
    row(
        "a node whose name does not resolve",
        "ros1-names",
        &["no-such-robot.invalid", "/talker", "/etc/hosts", "ROS_IP"],
        |scene| {
            scene.python(
            "import xmlrpc.client, time\n\
             master = xmlrpc.client.ServerProxy('http://127.0.0.1:11311')\n\
             master.registerPublisher('/talker', '/chatter', 'std_msgs/String', 'http://no-such-robot.invalid:4711/')\n\
             print('ready', flush=True)\ntime.sleep(1000)",
        );
            // The master keeps the registration, so it is undone.
            scene.undo.push("/usr/bin/python3 -c __import__('xmlrpc.client').client.ServerProxy('http://127.0.0.1:11311').unregisterPublisher('/talker','/chatter','http://no-such-robot.invalid:4711/')".into());
        },
    ),
    row("nodes in another domain", "ros2-domain", &["domain 5", "set ros2.domain to 5"], |scene| {
        scene.file = scene.ros2_file();
        scene.rclpy(&[("ROS_DOMAIN_ID", "5")], true);
    }),
    row(
        "one node in another domain",
        "dds-domain-of-nodes",
        &["ROS_DOMAIN_ID=7", "export ROS_DOMAIN_ID=0"],
        |scene| {
            scene.file = scene.ros2_file();
            scene.rclpy(&[("ROS_DOMAIN_ID", "0")], false);
            scene.rclpy(&[("ROS_DOMAIN_ID", "7")], false);
        },
    ),
    row(
        "a discovery server",
        "dds-discovery-server",
        &["10.0.0.1:11811", "unset ROS_DISCOVERY_SERVER"],
        |scene| {
            hide_node_with(scene, "ROS_DISCOVERY_SERVER", "10.0.0.1:11811");
        },
    ),
    row(
        "LARGE_DATA",
        "dds-transports",
        &["LARGE_DATA", "FASTDDS_BUILTIN_TRANSPORTS=DEFAULT"],
        |scene| {
            hide_node_with(scene, "FASTDDS_BUILTIN_TRANSPORTS", "LARGE_DATA");
        },
    ),
    row("shared memory alone", "dds-transports", &["SHM", "UDPv4"], |scene| {
        hide_node_with(scene, "FASTDDS_BUILTIN_TRANSPORTS", "SHM");
    }),
    row("discovery off", "dds-range", &["RANGE=OFF", "RANGE=LOCALHOST"], |scene| {
        hide_node_with(scene, "ROS_AUTOMATIC_DISCOVERY_RANGE", "OFF");
    }),
    row(
        "nodes on loopback alone",
        "dds-range",
        &["LOCALHOST", "set ros2.range to localhost"],
        |scene| {
            hide_node_with(scene, "ROS_LOCALHOST_ONLY", "1");
        },
    ),
    row(
        "a file for loopback alone",
        "dds-range",
        &["SUBNET", "set ros2.range to subnet", "export ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST"],
        |scene| {
            scene.file = scene.ros2_file();
            replace(scene, "range: subnet", "range: localhost");
            scene.rclpy(&[], false);
        },
    ),
    row(
        "a profile of Fast DDS",
        "dds-profile",
        &["/tmp/profile.xml", "unset FASTRTPS_DEFAULT_PROFILES_FILE"],
        |scene| {
            hide_node_with(scene, "FASTRTPS_DEFAULT_PROFILES_FILE", "/tmp/profile.xml");
        },
    ),
    row(
        "Zenoh",
        "dds-zenoh",
        &["rmw_zenoh_cpp", "process 4000000001 (talker)", "rmw_fastrtps_cpp"],
        |scene| {
            scene.file = scene.ros2_file();
            // No package of this machine has it.
            let folder = "/proc/4000000001";
            scene.plant(&format!("{folder}/comm"), "talker");
            scene.plant(
                &format!("{folder}/environ"),
                "PATH=/bin\0RMW_IMPLEMENTATION=rmw_zenoh_cpp\0",
            );
            scene.plant(
                &format!("{folder}/maps"),
                "7f0 r-xp 00 08:01 7 /opt/ros/jazzy/lib/librcl.so\n",
            );
        },
    ),
    row("a port in use", "port", &["18470", "python3", "set listen to 18471"], |scene| {
        scene.python(
            "import socket, time\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
             s.bind(('0.0.0.0', 18470))\nprint('ready', flush=True)\ntime.sleep(1000)",
        );
    }),
    row(
        "a firewall of nftables",
        "firewall",
        &["inet own", "nft insert rule inet own input udp dport 18470 accept"],
        |scene| {
            scene.robot.nft(
                "add table inet own\n\
             add chain inet own input { type filter hook input priority 0; policy drop; }\n\
             add rule inet own input iifname lo accept\n\
             add rule inet own input ct state established,related accept\n\
             add rule inet own input tcp dport { 22, 11311 } accept",
            );
            scene.undo.push("nft flush ruleset".into());
        },
    ),
    row("a rule that drops UDP", "firewall", &["chain in", "nft insert rule"], |scene| {
        scene.robot.nft(
            "add table inet own\nadd chain inet own in { type filter hook input priority 0; }\n\
             add chain inet own radio\nadd rule inet own in iifname \"wlan0\" jump radio\n\
             add rule inet own radio udp dport 18000-19000 counter drop",
        );
        scene.undo.push("nft flush ruleset".into());
    }),
    row(
        "a firewall of iptables",
        "firewall",
        &["iptables", "iptables -I INPUT -p udp --dport 18470 -j ACCEPT"],
        |scene| {
            for rule in [
                "-A INPUT -i lo -j ACCEPT",
                "-A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT",
                "-A INPUT -p tcp -m tcp --dport 22 -m comment --comment ssh -j ACCEPT",
                "-P INPUT DROP",
            ] {
                scene.robot.run(&format!("iptables {rule}"));
            }
            scene.undo.push("nft flush ruleset".into());
        },
    ),
    row(
        "a firewall of ip6tables",
        "firewall",
        &["ip6tables", "ip6tables -I INPUT -p udp --dport 18470 -j ACCEPT"],
        |scene| {
            scene.robot.ip("-6 address add fd00:77::1/64 dev wlan0 nodad");
            scene.undo.push("ip -6 address delete fd00:77::1/64 dev wlan0".into());
            scene.file = scene.usual_file("\"fd00:77::2\"");
            for rule in ["-A INPUT -p ipv6-icmp -j ACCEPT", "-P INPUT DROP"] {
                scene.robot.run(&format!("ip6tables {rule}"));
            }
            scene.undo.push("nft flush ruleset".into());
        },
    ),
    row(
        "a firewall that drops groups",
        "firewall",
        &["239.255.72.38 (beacons)", "nft insert rule inet own in"],
        |scene| {
            scene.lines("beacons: true");
            scene.robot.nft(
                "add table inet own\nadd chain inet own in { type filter hook input priority 0; }\n\
             add rule inet own in ip daddr 224.0.0.0/4 drop",
            );
            scene.undo.push("nft flush ruleset".into());
        },
    ),
    row("no multicast", "beacons", &["wlan0", "multicast on", "'address'"], |scene| {
        scene.lines("beacons: [wlan0]");
        scene.robot.ip("link set wlan0 multicast off");
        scene.undo.push("ip link set wlan0 multicast on".into());
    }),
    row(
        "an interface that is down",
        "link-down",
        &["eth7 is down", "ip link set eth7 up"],
        |scene| {
            add_interface(scene, "eth7", Some("10.98.0.1/24"));
            scene.robot.ip("link set eth7 down");
            scene.lines("radios: { eth7: {} }");
        },
    ),
    row(
        "an interface without an address",
        "link-down",
        &["eth7 has no IP address", "ip address add"],
        |scene| {
            add_interface(scene, "eth7", None);
            scene.lines("radios: { eth7: {} }");
        },
    ),
    row(
        "a host name that does not resolve",
        "peer-name",
        &["base.invalid", "/etc/hosts"],
        |scene| {
            scene.file = scene.usual_file("base.invalid");
        },
    ),
    row("the own address", "own-address", &["10.77.0.1", "that of the other machine"], |scene| {
        scene.file = scene.usual_file("10.77.0.1");
    }),
    row("no route", "peer-route", &["192.0.2.9", "ip route add 192.0.2.9"], |scene| {
        scene.file = scene.usual_file("192.0.2.9");
    }),
    row(
        "a route through a modem",
        "route-interface",
        &["wwan7", "mobile network", "set peers.base.interface to wlan0"],
        |scene| {
            add_interface(scene, "wwan7", Some("10.99.0.1/24"));
            scene.plant("/sys/class/net/wwan7/uevent", "DEVTYPE=wwan\nINTERFACE=wwan7\n");
            scene.file = scene.usual_file("10.99.0.2");
        },
    ),
    row(
        "a strict reverse path filter",
        "rp-filter",
        &["rp_filter of eth7", "net.ipv4.conf.eth7.rp_filter=2"],
        |scene| {
            add_interface(scene, "eth7", Some("10.98.0.1/24"));
            scene.robot.run("sysctl -qw net.ipv4.conf.eth7.rp_filter=1");
            replace(scene, "address: 10.77.0.2", "address: 10.77.0.2, interface: eth7");
        },
    ),
    row(
        "an address of two machines",
        "duplicate-address",
        &["9c:c9:eb:44:55:66", "another address"],
        |scene| {
            scene.program(
            "arping",
            "ARPING 10.77.0.1 from 0.0.0.0 wlan0\nUnicast reply from 10.77.0.1 [9c:c9:eb:44:55:66]  3.4ms\n\
             Sent 1 probes (1 broadcast(s))\nReceived 1 response(s)",
        );
        },
    ),
    row("a small MTU", "interface-mtu", &["wlan0 is 900", "ip link set wlan0 mtu"], |scene| {
        scene.robot.ip("link set wlan0 mtu 900");
        scene.undo.push("ip link set wlan0 mtu 1500".into());
    }),
    row(
        "Wi-Fi power saving",
        "wifi-power-save",
        &["wlan0 is on", "iw dev wlan0 set power_save off", "zz-tautline.conf"],
        |scene| {
            scene.iw("on", -55, "65.0", "yes", "DE");
        },
    ),
    row("a weak signal", "wifi-signal", &["-82 dBm", "antenna"], |scene| {
        scene.iw("off", -82, "6.5", "yes", "DE");
    }),
    row("an access point without WMM", "wifi-wmm", &["wlan0", "wmm_enabled=1"], |scene| {
        scene.iw("off", -55, "65.0", "no", "DE");
    }),
    row("no regulatory domain", "wifi-region", &["00 (world)", "iw reg set"], |scene| {
        scene.iw("off", -55, "65.0", "yes", "00");
    }),
    row(
        "slow repetitions of ARP",
        "neighbour-retry",
        &["1000 ms", "retrans_time_ms=50"],
        |scene| {
            scene.plant("/proc/sys/net/ipv4/neigh/wlan0/retrans_time_ms", "1000");
        },
    ),
    row("a tunnel without back-pressure", "back-pressure", &["tun7", "nothing"], |scene| {
        scene.robot.ip("tuntap add dev tun7 mode tun");
        scene.robot.ip("address add 10.97.0.1/24 dev tun7");
        scene.robot.ip("link set tun7 up");
        scene.undo.push("ip link delete tun7".into());
        scene.plant("/sys/class/net/tun7/operstate", "unknown");
        scene.lines("radios: { tun7: {} }");
    }),
    row(
        "a short transmit queue",
        "transmit-queue",
        &["holds 3 packets", "txqueuelen 1000"],
        |scene| {
            scene.robot.ip("link set wlan0 txqueuelen 3");
            scene.undo.push("ip link set wlan0 txqueuelen 1000".into());
        },
    ),
    row(
        "a clock without NTP",
        "clock",
        &["not synchronized", "sudo apt install chrony", "/etc/chrony/conf.d/tautline.conf"],
        |scene| {
            scene.program("timedatectl", "no");
        },
    ),
    row("a slow processor", "governor", &["2 of 2 processors", "scaling_governor"], |scene| {
        for cpu in ["cpu0", "cpu1"] {
            let folder = format!("/sys/devices/system/cpu/{cpu}/cpufreq");
            scene.plant(&format!("{folder}/scaling_governor"), "powersave");
            scene.plant(&format!("{folder}/scaling_driver"), "cpufreq-dt");
        }
    }),
    row(
        "real time without the right",
        "realtime",
        &["'priority'", "sudo mkdir -p", "examples/drop-ins/realtime.conf"],
        |scene| {
            plant_unit(scene, "RestrictRealtime=yes");
            scene.lines("realtime: { priority: 50 }");
        },
    ),
    row(
        "too little memory",
        "memory",
        &["MemoryMax", "64 MiB", "1 peers that reach every limit"],
        |scene| {
            plant_unit(scene, "MemoryMax=64M");
        },
    ),
    row(
        "a small receive buffer",
        "receive-buffer",
        &["212992", "net.core.rmem_max=4194304"],
        |scene| {
            scene.plant("/proc/sys/net/core/rmem_max", "212992");
        },
    ),
    row("a full disk", "disk", &["1 MiB", "journalctl --vacuum-size"], |scene| {
        let folder = scene.place.path("state");
        std::fs::create_dir_all(&folder).unwrap();
        let folder = folder.display().to_string();
        scene.robot.run(&format!("mount -t tmpfs -o size=1M tmpfs {folder}"));
        scene.undo.push(format!("umount {folder}"));
        scene.lines(&format!("state: {folder}"));
    }),
    row(
        "a peer that is down",
        "peer-down",
        &["'base' is 'down'", "ping -c 3 10.77.0.2"],
        |scene| {
            scene.change_status(|it| {
                it.peers[0].state = "down".into();
                it.links[0].up = false;
                it.links[0].remote = "10.77.0.2:18470".into();
            });
        },
    ),
    row(
        "a wrong key",
        "peer-key",
        &[
            "which belongs to no peer",
            "sudo tautline status",
            "robot1.yaml",
            "sudo tautline reload",
        ],
        |scene| {
            notice(
                scene,
                "a node 'thief' initiates handshakes from 10.77.0.9 with the key X, which belongs to no peer of 'robot1': add it under peers, or ignore this if the peer was removed on purpose",
            );
        },
    ),
    row(
        "a clock that differs",
        "peer-clock",
        &["400 ms", "set peers.base.move_stamps to true"],
        |scene| {
            let clock = ClockReport { offset_ms: Some(-400.0), bound_ms: 2.0, drift_ppm: None };
            scene.change_status(|it| it.peers[0].clock = Some(clock));
        },
    ),
    row(
        "a path that drops large packets",
        "path-mtu",
        &["1100 bytes", "black hole", "ICMP"],
        |scene| {
            scene.change_status(|it| {
                it.links[0].mtu = 1100;
                it.links[0].mtu_known_by = "black hole".into();
            });
        },
    ),
    row("a lossy link", "loss", &["loses 9 %", "fec"], |scene| {
        scene.change_status(|it| it.links[0].loss = 0.09);
    }),
    row(
        "topics that exceed the link",
        "too-slow",
        &["12.0 Mbps", "4.0 Mbps", "rate to 2Hz"],
        |scene| {
            scene.change_status(|it| it.peers[0].wanted_bps = Some(12e6));
        },
    ),
    row(
        "a topic that the peer refuses",
        "refused-there",
        &["'base' refuses /scan (", "at 'base': sudo tautline doctor"],
        |scene| {
            let topic = scene.status.as_ref().unwrap().topics.iter().find(|it| it.topic == "/scan");
            assert!(topic.is_some_and(|it| it.direction == Direction::Out), "{topic:?}");
            notice(
                scene,
                "'base' refuses /scan (sensor_msgs/LaserScan): add there, under peers.robot1: accept: { /scan: any }",
            );
        },
    ),
    row(
        "topics of a peer whose keys stand in the file",
        "not-accepted",
        &[
            "publish /goal",
            "set /gain",
            "replace these keys under peers.base",
            "set_parameters: [/rate, /gain]",
        ],
        |scene| {
            let waiting = |act: &str, name: &str, line: &str| WaitingReport {
                peer: "base".into(),
                act: act.into(),
                name: name.into(),
                type_name: "a/B".into(),
                line: line.into(),
            };
            scene.change_status(|it| {
                it.waiting.push(waiting("publish", "/goal", "accept: { /goal: a/B }"));
                it.waiting.push(waiting("set", "/gain", "set_parameters: /gain"));
                let lines = "    accept:\n      /goal: a/B\n    set_parameters: [/rate, /gain]\n";
                it.to_allow_all.push(LinesReport { peer: "base".into(), lines: lines.into() });
            });
        },
    ),
    row("a topic without a line", "not-accepted", &["/goal", "accept: { /goal: any }"], |scene| {
        scene.change_status(|it| {
            it.waiting.push(WaitingReport {
                peer: "base".into(),
                act: "publish".into(),
                name: "/goal".into(),
                type_name: "geometry_msgs/PoseStamped".into(),
                line: "accept: { /goal: any }".into(),
            });
        });
    }),
];
