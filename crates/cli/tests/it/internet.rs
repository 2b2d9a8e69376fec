// SPDX-License-Identifier: Apache-2.0
//! The recipes of docs/how-to/internet.md: their files are read from the page and run as written, with other
//! keys, behind translators of the kernel. Needs root, nft, wg and wireguard-go.

use crate::PROGRAM;
use crate::translators::{Kind, World};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tautline::keys;
use tautline::status::Status;
use tautline_cli::control::Client;
use tautline_testkit::running::enclosure::Enclosure;
use tautline_testkit::running::{Place, wait_for};

const PAGE: &str = include_str!("../../../../docs/how-to/internet.md");
/// The keys of the page: text in base64, of which nobody has the secret key.
const KEYS: [(&str, &str); 3] = [
    ("robot", "cHVibGljIGtleSBvZiByb2JvdCwgYW4gZXhhbXBsZS4="),
    ("base", "cHVibGljIGtleSBvZiBiYXNlLCBhbiBleGFtcGxlLi4="),
    ("relay", "cHVibGljIGtleSBvZiByZWxheSwgYW4gZXhhbXBsZS4="),
];

/// The files of a section of the page, by their names.
fn files(section: &str) -> BTreeMap<String, String> {
    let (_, rest) = PAGE.split_once(&format!("\n## {section}\n")).expect(section);
    let text = rest.split("\n## ").next().unwrap();
    let blocks = text.split("```yaml\n# ").skip(1);
    let file = |block: &str| {
        let (name, rest) = block.split_once('\n').unwrap();
        (name.to_owned(), rest.split_once("\n```").unwrap().0.to_owned() + "\n")
    };
    blocks.map(file).collect()
}

/// A daemon that runs a file of the page.
struct Daemon {
    child: Child,
    folder: PathBuf,
    name: String,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            eprintln!("{}:\n{log}", self.name);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Daemon {
    fn socket(&self) -> PathBuf {
        self.folder.join("tautline").join(format!("{}.sock", self.name))
    }

    /// The daemon's report; `None` until it runs.
    fn status(&self) -> Option<Status> {
        Client::connect(&self.socket()).and_then(|mut client| client.status()).ok()
    }

    /// What `tautline status` prints.
    fn status_text(&self) -> String {
        let mut command = Command::new(PROGRAM);
        let output = command.args(["status", "--control"]).arg(self.socket()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// The paths of the links to a peer that are up or on standby, sorted.
    fn paths(&self, peer: &str) -> Vec<String> {
        let links = self.status().into_iter().flat_map(|status| status.links);
        let heard = links.filter(|it| it.peer == peer && ["up", "standby"].contains(&&*it.state));
        let mut paths: Vec<_> = heard.map(|it| format!("{} {}", it.path, it.state)).collect();
        paths.sort();
        paths
    }

    fn wait_for_paths(&self, peer: &str, expected: &[&str]) {
        let look = || (self.paths(peer) == expected).then_some(());
        let what = format!("{expected:?} from {} to {peer}\n{}", self.name, self.status_text());
        wait_for(what, look);
    }
}

/// A recipe that runs.
struct Recipe {
    daemons: BTreeMap<String, Daemon>,
}

impl Recipe {
    /// Starts each file of a section at its place.
    fn start(section: &str, place: &Place, places: &[(&str, &Enclosure)]) -> Self {
        let files = files(section);
        let names: Vec<String> = places.iter().map(|(name, _)| format!("{name}.yaml")).collect();
        assert_eq!(files.keys().cloned().collect::<Vec<_>>(), names, "the files of '{section}'");
        let folder = |name: &str| place.path(&format!("{section} {name}").replace(' ', "-"));
        let mut real = Vec::new();
        for (name, example) in KEYS {
            let folder = folder(name);
            std::fs::create_dir(&folder).unwrap();
            let public = keys::generate(&folder.join(format!("{name}.key"))).unwrap();
            real.push((example, public.to_string()));
        }
        let start = |(name, inside): &(&str, &Enclosure)| {
            let folder = folder(name);
            let example = files[&format!("{name}.yaml")].clone();
            let text = real.iter().fold(example, |text, (from, to)| text.replace(from, to));
            let file = folder.join(format!("{name}.yaml"));
            std::fs::write(&file, text).unwrap();
            ((*name).to_owned(), spawn(name, &file, inside))
        };
        let daemons: BTreeMap<_, _> = places.iter().map(start).collect();
        for daemon in daemons.values() {
            wait_for(format!("{} runs", daemon.name), || daemon.status().map(|_| ()));
        }
        Self { daemons }
    }

    fn at(&self, name: &str) -> &Daemon {
        &self.daemons[name]
    }

    fn show(&self) {
        for (name, daemon) in &self.daemons {
            println!("--- {name}\n{}", daemon.status_text());
        }
    }
}

fn spawn(name: &str, file: &Path, inside: &Enclosure) -> Daemon {
    let folder = file.parent().unwrap().to_owned();
    let mut command = inside.command(PROGRAM);
    command.arg(if name == "relay" { "relay" } else { "run" }).arg(file);
    let log = std::fs::File::create(folder.join("log")).unwrap();
    command.env("XDG_RUNTIME_DIR", &folder).env_remove("NOTIFY_SOCKET").env_remove("TAUTLINE_LOG");
    let child = command.stdin(Stdio::null()).stderr(log).spawn().unwrap();
    Daemon { child, folder, name: name.into() }
}

#[test]
fn the_base_has_an_address_behind_a_router_that_forwards_its_port() {
    let world = World::with_carrier([Kind::Symmetric, Kind::FullCone]);
    world.forward_node_port(1);
    let places = [("base", &world.base), ("robot", &world.robot)];
    let recipe = Recipe::start("The base has an address", &world.place, &places);
    recipe.at("robot").wait_for_paths("base", &["NAT both up"]);
    recipe.at("base").wait_for_paths("robot", &["NAT both up"]);
    recipe.show();

    let world = World::without_translators();
    let places = [("base", &world.base), ("robot", &world.robot)];
    let recipe = Recipe::start("The base has an address", &world.place, &places);
    recipe.at("robot").wait_for_paths("base", &["direct up"]);
}

#[test]
fn a_team_relay_enables_a_direct_path_or_forwards() {
    for (kinds, is_direct) in [
        ([Kind::PortRestricted; 2], true),
        ([Kind::Symmetric, Kind::FullCone], true),
        ([Kind::Symmetric, Kind::PortRestricted], false),
    ] {
        let world = World::with_carrier(kinds);
        let places = [("base", &world.base), ("relay", &world.relay), ("robot", &world.robot)];
        let recipe = Recipe::start("A relay on a public host", &world.place, &places);
        let expected: &[&str] = match is_direct {
            true => &["NAT both up", "relay standby"],
            false => &["relay up"],
        };
        if !is_direct {
            wait_for("the end of the first search", || {
                let notices = recipe.at("robot").status().unwrap().notices;
                notices.iter().any(|it| it.contains("direct path")).then_some(())
            });
        }
        recipe.at("robot").wait_for_paths("base", expected);
        recipe.at("base").wait_for_paths("robot", expected);
        recipe.at("robot").wait_for_paths("relay", &["NAT here up"]);
        let status = recipe.at("relay").status().unwrap();
        assert_eq!((status.teams[0].up, status.teams[0].members), (2, 2));
        recipe.show();
    }
}

/// The interface `wg0` of an end of a VPN, and the process that serves it.
struct Tunnel<'a> {
    inside: &'a Enclosure,
    process: Child,
    secret: String,
    public: String,
}

impl Drop for Tunnel<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl<'a> Tunnel<'a> {
    fn new(inside: &'a Enclosure, number: u8) -> Self {
        // Without this folder, the sockets of all namespaces would have the same path.
        inside.run("mkdir -p /run/wireguard");
        inside.run("mount -t tmpfs none /run/wireguard");
        let mut command = inside.command("wireguard-go");
        command.args(["--foreground", "wg0"]).stdin(Stdio::null()).stderr(Stdio::null());
        let process = command.stdout(Stdio::null()).spawn().expect("wireguard-go");
        wait_for("the interface wg0", || {
            let shown = inside.command("wg").args(["show", "wg0"]).output().unwrap();
            shown.status.success().then_some(())
        });
        let secret = inside.run("wg genkey").trim().to_owned();
        let mut pipe = inside.command("sh");
        let public = pipe.args(["-c", &format!("echo {secret} | wg pubkey")]).output().unwrap();
        let public = String::from_utf8(public.stdout).unwrap().trim().to_owned();
        inside.ip(&format!("addr add 10.8.0.{number}/24 dev wg0"));
        inside.ip("link set wg0 mtu 1420 up");
        Self { inside, process, secret, public }
    }

    /// Sets the own section of the file and the peers.
    fn configure(&self, place: &Place, interface: &str, peers: &[String]) {
        let file = place.path(&format!("{}.conf", self.public.replace('/', "_")));
        let own = format!("[Interface]\nPrivateKey = {}\n{interface}\n", self.secret);
        std::fs::write(&file, own + &peers.concat()).unwrap();
        self.inside.run(&format!("wg setconf wg0 {}", file.display()));
    }

    /// The section of this end in the file of another.
    fn as_peer(&self, lines: &str) -> String {
        format!("[Peer]\nPublicKey = {}\n{lines}\n", self.public)
    }
}

#[test]
fn a_vpn_has_no_translator_inside() {
    let world = World::with_carrier([Kind::Symmetric, Kind::PortRestricted]);
    let [server, robot, base] = [(&world.relay, 1), (&world.robot, 2), (&world.base, 3)]
        .map(|(inside, number)| Tunnel::new(inside, number));
    world.relay.run("sysctl -qw net.ipv4.ip_forward=1");
    let ends = [(&robot, 2), (&base, 3)]
        .map(|(end, number)| end.as_peer(&format!("AllowedIPs = 10.8.0.{number}/32")));
    server.configure(&world.place, "ListenPort = 51820", &ends);
    for end in [&robot, &base] {
        let lines =
            "AllowedIPs = 10.8.0.0/24\nEndpoint = 203.0.113.2:51820\nPersistentKeepalive = 25";
        end.configure(&world.place, "", &[server.as_peer(lines)]);
    }
    let places = [("base", &world.base), ("robot", &world.robot)];
    let recipe = Recipe::start("A VPN", &world.place, &places);
    recipe.at("robot").wait_for_paths("base", &["direct up"]);
    recipe.at("base").wait_for_paths("robot", &["direct up"]);
    wait_for("the size of packets", || {
        let links = recipe.at("robot").status().unwrap().links;
        links.iter().any(|it| it.mtu == 1420 && it.mtu_known_by == "interface").then_some(())
    });
    recipe.show();
}
