// SPDX-License-Identifier: Apache-2.0
use super::*;

fn packet() -> Packet {
    Packet {
        interface: "wlan0".into(),
        from: "10.0.0.2".parse().ok(),
        port: 18470,
        group: None,
        is_answer: false,
    }
}

fn fate_of(lines: &str) -> Fate {
    Ruleset::of_iptables(lines, &packet()).fate_of_packet()
}

fn is_dropped(fate: &Fate) -> bool {
    matches!(fate, Fate::Dropped(_))
}

#[test]
fn rules_of_iptables_are_followed() {
    let usual = "-P INPUT DROP\n-A INPUT -i lo -j ACCEPT\n\
                 -A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n\
                 -A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\n";
    assert!(is_dropped(&fate_of(usual)));
    for line in [
        "-A INPUT -p udp -m udp --dport 18470 -j ACCEPT",
        "-A INPUT -p udp -m multiport --dports 53,18000:19000 -j ACCEPT",
        "-A INPUT -s 10.0.0.0/24 -j ACCEPT",
        "-A INPUT -i wlan+ -j ACCEPT",
        "-A INPUT ! -i eth0 -j ACCEPT",
        "-N OWN\n-A INPUT -j OWN\n-A OWN -p udp -m udp --dport 18470 -j ACCEPT",
    ] {
        assert_eq!(fate_of(&format!("{usual}{line}")), Fate::Accepted, "{line}");
    }
    let unknown = format!("{usual}-A INPUT -m set --match-set peers src -j ACCEPT");
    assert_eq!(fate_of(&unknown), Fate::Unknown);
    assert!(is_dropped(&fate_of("-P INPUT ACCEPT\n-A INPUT -p udp -j REJECT")));
    assert_eq!(fate_of("-P INPUT ACCEPT\n-A INPUT -p tcp -j DROP"), Fate::Accepted);
    assert_eq!(fate_of(""), Fate::Accepted);
}

#[test]
fn answers_pass_a_stateful_firewall() {
    let answer = Packet { is_answer: true, ..packet() };
    let usual = "-P INPUT DROP\n-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n";
    assert!(is_dropped(&fate_of(usual)));
    assert_eq!(Ruleset::of_iptables(usual, &answer).fate_of_packet(), Fate::Accepted);
    assert!(is_dropped(&Ruleset::of_iptables("-P INPUT DROP", &answer).fate_of_packet()));
}

#[test]
fn a_verdict_below_an_unknown_rule_is_unknown() {
    let unknown = "-A INPUT -m set --match-set peers src -j DROP\n";
    for (policy, below) in [("DROP", "ACCEPT"), ("ACCEPT", "DROP")] {
        let rules =
            format!("-P INPUT {policy}\n-N OWN\n{unknown}-A INPUT -j OWN\n-A OWN -j {below}");
        assert_eq!(fate_of(&rules), Fate::Unknown, "{rules}");
    }
}

/// The form of the rules that ufw makes.
#[test]
fn rules_of_ufw_are_followed() {
    let rules = |user: &str| {
        format!(
            "-P INPUT DROP\n-N ufw-before\n-N ufw-not-local\n-N ufw-user\n-A INPUT -j ufw-before\n\
             -A ufw-before -i lo -j ACCEPT\n\
             -A ufw-before -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n\
             -A ufw-before -m conntrack --ctstate INVALID -j DROP\n\
             -A ufw-before -p icmp -m icmp --icmp-type 8 -j ACCEPT\n\
             -A ufw-before -p udp -m udp --sport 67 --dport 68 -j ACCEPT\n\
             -A ufw-before -j ufw-not-local\n\
             -A ufw-before -d 224.0.0.251/32 -p udp -m udp --dport 5353 -j ACCEPT\n\
             -A ufw-before -j ufw-user\n\
             -A ufw-not-local -m addrtype --dst-type LOCAL -j RETURN\n\
             -A ufw-not-local -m addrtype --dst-type MULTICAST -j RETURN\n\
             -A ufw-not-local -m limit --limit 3/min --limit-burst 10 -j LOG --log-prefix \"[BLOCK] \"\n\
             -A ufw-not-local -j DROP\n\
             -A ufw-user -p tcp -m tcp --dport 22 -m conntrack --ctstate NEW -m recent --set\n\
             -A ufw-user -p tcp -m tcp --dport 22 -j ACCEPT\n{user}"
        )
    };
    assert!(is_dropped(&fate_of(&rules(""))));
    let allowed = rules("-A ufw-user -p udp -m udp --dport 18470 -j ACCEPT\n");
    assert_eq!(fate_of(&allowed), Fate::Accepted);
}

/// The form of the rules that firewalld makes.
#[test]
fn rules_of_firewalld_are_followed() {
    let rule = |chain: &str, expr: Value| serde_json::json!({"rule": {"family": "inet", "table": "firewalld", "chain": chain, "expr": expr}});
    let of_meta = |key: &str, right: Value| serde_json::json!({"match": {"op": "==", "left": {"meta": {"key": key}}, "right": right}});
    let of_ct = |key: &str, right: Value| serde_json::json!({"match": {"op": "in", "left": {"ct": {"key": key}}, "right": right}});
    let port = |protocol: &str, right: Value| {
        let left = serde_json::json!({"payload": {"protocol": protocol, "field": "dport"}});
        serde_json::json!({"match": {"op": "==", "left": left, "right": right}})
    };
    let accept = || serde_json::json!({"accept": null});
    let goto = |target: &str| serde_json::json!({"goto": {"target": target}});
    let rules = |port_of_udp: u16| {
        let mut all = vec![serde_json::json!({"chain": {
            "family": "inet", "table": "firewalld", "name": "filter_INPUT", "type": "filter",
            "hook": "input", "prio": 10, "policy": "accept"}})];
        all.extend([
            rule(
                "filter_INPUT",
                serde_json::json!([
                    of_ct("state", serde_json::json!(["established", "related"])),
                    accept()
                ]),
            ),
            rule(
                "filter_INPUT",
                serde_json::json!([of_ct("status", serde_json::json!("dnat")), accept()]),
            ),
            rule("filter_INPUT", serde_json::json!([of_meta("iifname", "lo".into()), accept()])),
            rule(
                "filter_INPUT",
                serde_json::json!([of_meta("iifname", "wlan0".into()), goto("in_public")]),
            ),
            rule("in_public", serde_json::json!([port("tcp", 22.into()), accept()])),
            rule("in_public", serde_json::json!([port("udp", port_of_udp.into()), accept()])),
            rule(
                "in_public",
                serde_json::json!([{"reject": {"type": "icmpx", "expr": "admin-prohibited"}}]),
            ),
        ]);
        serde_json::json!({ "nftables": all }).to_string()
    };
    let of_port = |port| Ruleset::of_nft(&rules(port), &packet()).unwrap();
    assert!(is_dropped(&of_port(5353).fate_of_packet()));
    assert!(of_port(5353).has_table("firewalld"));
    assert_eq!(of_port(18470).fate_of_packet(), Fate::Accepted);
}

#[test]
fn any_text_is_read_without_a_panic() {
    for text in ["", "{}", "[]", "{\"nftables\":7}", "{\"nftables\":[{\"rule\":{}}]}"] {
        let _ = Ruleset::of_nft(text, &packet()).map(|it| it.fate_of_packet());
    }
    let looped = "-P INPUT DROP\n-A INPUT -j A\n-A A -j A";
    assert_eq!(fate_of(looped), Fate::Unknown);
    assert!(is_dropped(&fate_of("-P INPUT DROP\n-A INPUT\n-A INPUT -p")));
    assert_eq!(fate_of("-P INPUT DROP\n-A INPUT -j"), Fate::Unknown);
}
