// SPDX-License-Identifier: Apache-2.0
//! The golden vectors of spec/vectors: bytes and their meaning.
//!
//! The meanings are written by hand. `UPDATE=1` writes the bytes again from the meanings, so that a
//! change of the format shows as a diff of both.
#![expect(clippy::disallowed_methods, reason = "the vectors are files")]

use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;
use tautline_proto::crypto::cookies::{CookieJar, MacKey};
use tautline_proto::crypto::noise::{Initiator, ReceivedInitiation, Split};
use tautline_proto::crypto::seal::Sealer;
use tautline_proto::crypto::tag::SharedTagKey;
use tautline_proto::wire::WireError;
use tautline_proto::wire::address::Candidates;
use tautline_proto::wire::beacon::emit_beacon;
use tautline_proto::wire::control::{Control, Offer};
use tautline_proto::wire::cursor::Reader;
use tautline_proto::wire::frame::{
    Ack, BlockPlace, ClockReport, Data, Fragment, Frame, put_candidates, put_challenge, put_echo,
    put_goodbye, put_held, put_observe, put_observed, put_ping,
};
use tautline_proto::wire::packet::{
    Greeting, Packet, SessionHeader, full_number, start_initiation, start_response,
};
use tautline_proto::wire::parity::Parity;
use tautline_proto::wire::relay::{Held, RelayHeader, ShortName};
use tautline_proto::{
    DeliveryOrder, Duration, EcnCounts, Instant, OfferedQos, OfferedTopic, Role, SecretKey, Verdict,
};

fn path(file: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../spec/vectors", file].iter().collect()
}

fn vectors(file: &str, list: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(path(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
    let file: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{file}: {e}"));
    let found = file[list].as_array().expect("a list of vectors").clone();
    assert!(!found.is_empty());
    found
}

fn unhex(text: &Value) -> Vec<u8> {
    let text = text.as_str().expect("hex is text");
    assert!(text.len().is_multiple_of(2), "hex of whole bytes: {text}");
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex digits");
    (0..text.len()).step_by(2).map(byte).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("not a number: {value}"))
}

fn address(value: &Value) -> SocketAddr {
    string_of(value).parse().unwrap_or_else(|_| panic!("not an address: {value}"))
}

fn string_of(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("not text: {value}"))
}

fn flag(value: &Value) -> bool {
    value.as_bool().unwrap_or_else(|| panic!("not true or false: {value}"))
}

fn frames(bytes: &[u8]) -> Result<Vec<Frame<'_>>, WireError> {
    let mut reader = Reader::new(bytes);
    let mut frames = Vec::new();
    while !reader.is_empty() {
        frames.push(Frame::parse(&mut reader)?);
    }
    Ok(frames)
}

fn frames_meaning(bytes: &[u8]) -> Result<Value, WireError> {
    Ok(frames(bytes)?.iter().map(frame_meaning).collect())
}

fn frame_meaning(frame: &Frame<'_>) -> Value {
    match frame {
        Frame::Data(data, payload) => json!({"data": data_meaning(data, payload)}),
        Frame::Parity(data, bytes) => parity_meaning(data, bytes),
        Frame::Ack(ack) => json!({"ack": {
            "link": ack.link, "delay_us": ack.delay.as_micros() as u64,
            "waited_us": ack.waited.as_micros() as u64,
            "least_waited_us": ack.least_waited.as_micros() as u64,
            "capable": ack.ecn.capable, "marked": ack.ecn.marked, "ranges": ack.ranges,
        }}),
        Frame::Ping => json!("ping"),
        Frame::Goodbye => json!("goodbye"),
        Frame::Observe(own) => json!({"observe": own.to_string()}),
        Frame::Observed(observed) => json!({"observed": observed.to_string()}),
        Frame::Candidates(it) => {
            let addresses: Vec<String> = it.addresses.iter().map(ToString::to_string).collect();
            json!({"candidates": {"answer": it.is_answer, "addresses": addresses}})
        }
        Frame::Challenge(token) => json!({"challenge": token.to_string()}),
        Frame::Echo(token) => json!({"echo": token.to_string()}),
        Frame::Relay(data, bytes) => {
            let mut reader = Reader::new(bytes);
            let header = RelayHeader::parse(&mut reader).expect("vectors hold whole packets");
            let name = |name: Option<ShortName>| name.map(|name| hex(&name.0));
            json!({"relay": {
                "priority": data.channel, "number": data.number,
                "age_us": data.age.as_micros() as u64, "hops": header.hops,
                "life_ms": header.life.map(|life| life.as_millis() as u64),
                "from": name(header.from), "to": name(header.to), "packet": hex(reader.remaining()),
            }})
        }
        Frame::Held(held) => {
            let from = held.from.map(|it| hex(&it.0));
            json!({"held": {"to": hex(&held.to.0), "bytes": held.bytes, "from": from}})
        }
        Frame::Clock(report) => json!({"clock": {
            "least_us": report.least, "wall_us": report.wall.map(|wall| wall.to_string()),
        }}),
        Frame::Unknown(kind) => json!({"unknown": kind}),
    }
}

fn data_meaning(data: &Data, payload: &[u8]) -> Value {
    let mut meaning = json!({
        "channel": data.channel, "number": data.number, "source": data.source,
        "encoded": data.encoded, "age_us": data.age.as_micros() as u64,
        "fragment": data.fragment.map(|f| json!({"total": f.total, "offset": f.offset})),
        "payload": hex(payload),
    });
    if let Some(BlockPlace { block, index, since }) = data.place {
        let since = since.as_micros() as u64;
        meaning["place"] = json!({"block": block, "index": index, "since_us": since});
    }
    meaning
}

fn parity_meaning(data: &Data, bytes: &[u8]) -> Value {
    let (parity, symbol) = Parity::parse(&mut Reader::new(bytes)).expect("whole symbols");
    json!({"parity": {
        "channel": data.channel, "number": data.number, "age_us": data.age.as_micros() as u64,
        "block": parity.block, "sources": parity.sources, "index": parity.index,
        "symbol": hex(symbol),
    }})
}

fn offer_meaning(offer: &Offer) -> Value {
    let Offer { channel, topic: t } = offer;
    let mut meaning = json!({"offer": {
            "channel": channel, "name": t.name, "type": t.type_name, "hash": t.type_hash,
            "priority": t.priority, "keep_last": t.keep_last,
            "lifespan_ms": t.lifespan.map(|l| l.as_millis() as u64),
            "transient_local": t.qos.transient_local, "reliable": t.qos.reliable,
            "manual_liveliness": t.qos.manual_liveliness, "depth": t.qos.depth,
            "deadline_ms": t.qos.deadline.map(|it| it.as_millis() as u64),
            "lease_ms": t.qos.lease.map(|it| it.as_millis() as u64),
            "role": match t.role {
                Role::Topic => "topic",
                Role::Answers => "answers",
                Role::Calls => "calls",
            },
            "order": match t.order {
                DeliveryOrder::Arrival => json!("arrival"),
                DeliveryOrder::Sent { wait } => json!({"sent_wait_ms": wait.as_millis() as u64}),
                DeliveryOrder::Newest => json!("newest"),
            },
    }});
    if t.qos.not_alive {
        meaning["offer"]["not_alive"] = true.into();
    }
    if t.qos.classes != 0 || t.qos.keeping != 0 || t.qos.not_alive {
        meaning["offer"]["classes"] = t.qos.classes.into();
        meaning["offer"]["keeping"] = t.qos.keeping.into();
    }
    meaning
}

fn control_meaning(bytes: &[u8]) -> Result<Value, WireError> {
    Ok(match Control::parse(bytes)? {
        Control::Offer(offer) => offer_meaning(&offer),
        Control::Withdraw { channel } => json!({"withdraw": {"channel": channel}}),
        Control::Want { channel, wanted } => {
            json!({"want": {"channel": channel, "wanted": wanted}})
        }
        Control::GetDefinition { channel } => json!({"get_definition": {"channel": channel}}),
        Control::Definition { channel, text } => {
            json!({"definition": {"channel": channel, "text": text}})
        }
        Control::Refuse { channel, reason } => {
            json!({"refuse": {"channel": channel, "reason": reason}})
        }
        Control::Unknown(kind) => json!({"unknown": kind}),
    })
}

/// Encodes the frames that a meaning describes.
fn frames_bytes(meaning: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    meaning.as_array().expect("frames").iter().for_each(|frame| put_frame(frame, &mut out));
    out
}

fn put_frame(meaning: &Value, out: &mut Vec<u8>) {
    match meaning.as_str() {
        Some("ping") => return put_ping(out),
        Some("goodbye") => return put_goodbye(out),
        _ => {}
    }
    if let Some(a) = meaning.get("ack") {
        let ends = |run: &Value| (number(&run[0]), number(&run[1]));
        let ranges = a["ranges"].as_array().expect("ranges").iter().map(ends).collect();
        let [delay, waited, least_waited] = ["delay_us", "waited_us", "least_waited_us"]
            .map(|field| Duration::from_micros(number(&a[field])));
        let link = number(&a["link"]) as u8;
        let ecn = EcnCounts { capable: number(&a["capable"]), marked: number(&a["marked"]) };
        return Ack { link, delay, waited, least_waited, ecn, ranges }.emit(out);
    }
    let token = |field: &str| Some(string_of(meaning.get(field)?).parse().expect("64 bits"));
    if let Some(token) = token("challenge") {
        return put_challenge(token, out);
    }
    if let Some(token) = token("echo") {
        return put_echo(token, out);
    }
    let name = |value: &Value| {
        value.as_str().map(|_| ShortName(unhex(value).try_into().expect("3 bytes")))
    };
    if let Some(own) = meaning.get("observe") {
        return put_observe(address(own), out);
    }
    if let Some(observed) = meaning.get("observed") {
        return put_observed(address(observed), out);
    }
    if let Some(it) = meaning.get("candidates") {
        let addresses = it["addresses"].as_array().unwrap().iter().map(address).collect();
        let is_answer = it["answer"].as_bool().unwrap();
        return put_candidates(&Candidates { is_answer, addresses }, out);
    }
    if let Some(held) = meaning.get("held") {
        let to = name(&held["to"]).expect("a name");
        let from = name(&held["from"]);
        return put_held(&Held { to, bytes: number(&held["bytes"]), from }, out);
    }
    if let Some(r) = meaning.get("relay") {
        let life = time(&r["life_ms"]);
        let hops = number(&r["hops"]) as u8;
        let mut payload = Vec::new();
        RelayHeader { hops, life, from: name(&r["from"]), to: name(&r["to"]) }.emit(&mut payload);
        payload.extend_from_slice(&unhex(&r["packet"]));
        let (channel, number, age) = (number(&r["priority"]), number(&r["number"]), &r["age_us"]);
        let age = Duration::from_micros(self::number(age));
        let (fragment, place) = (None, None);
        let data = Data { channel, number, source: 0, encoded: false, age, fragment, place };
        return data.emit_relay(&payload, out);
    }
    if let Some(clock) = meaning.get("clock") {
        let least = clock["least_us"].as_u64().map(|least| least as u32);
        let wall = clock["wall_us"].as_str().map(|wall| wall.parse().expect("64 bits"));
        return ClockReport { least, wall }.emit(out);
    }
    if let Some(p) = meaning.get("parity") {
        let (channel, age) = (number(&p["channel"]), Duration::from_micros(number(&p["age_us"])));
        let [sources, index] = ["sources", "index"].map(|field| number(&p[field]) as u8);
        let parity = Parity { block: number(&p["block"]), sources, index };
        let payload = parity.with_header(&unhex(&p["symbol"]));
        let number = number(&p["number"]);
        let (fragment, place) = (None, None);
        let data = Data { channel, number, source: 0, encoded: false, age, fragment, place };
        return data.emit_parity(&payload, out);
    }
    let d = meaning.get("data").expect("a type of frame that is emitted");
    let fragment = d["fragment"].as_object().map(|f| Fragment {
        total: number(&f["total"]) as u32,
        offset: number(&f["offset"]) as u32,
    });
    let data = Data {
        channel: number(&d["channel"]),
        number: number(&d["number"]),
        source: number(&d["source"]) as u32,
        encoded: flag(&d["encoded"]),
        age: Duration::from_micros(number(&d["age_us"])),
        fragment,
        place: d["place"].as_object().map(|it| BlockPlace {
            block: number(&it["block"]),
            index: number(&it["index"]) as u8,
            since: Duration::from_micros(number(&it["since_us"])),
        }),
    };
    data.emit(&unhex(&d["payload"]), out);
}

fn time(ms: &Value) -> Option<Duration> {
    ms.as_u64().map(Duration::from_millis)
}

fn control_bytes(meaning: &Value) -> Vec<u8> {
    let (kind, m) = meaning.as_object().and_then(|m| m.iter().next()).expect("one kind");
    let channel = number(&m["channel"]);
    let owned = |field: &str| string_of(&m[field]).to_owned();
    let control = match kind.as_str() {
        "offer" => Control::Offer(Offer {
            channel,
            topic: OfferedTopic {
                name: owned("name"),
                type_name: owned("type"),
                type_hash: owned("hash"),
                priority: number(&m["priority"]) as u8,
                keep_last: number(&m["keep_last"]) as u32,
                lifespan: time(&m["lifespan_ms"]),
                qos: OfferedQos {
                    transient_local: flag(&m["transient_local"]),
                    depth: number(&m["depth"]) as u32,
                    reliable: flag(&m["reliable"]),
                    deadline: time(&m["deadline_ms"]),
                    manual_liveliness: flag(&m["manual_liveliness"]),
                    lease: time(&m["lease_ms"]),
                    not_alive: m["not_alive"].as_bool().unwrap_or(false),
                    classes: m["classes"].as_u64().unwrap_or(0) as u8,
                    keeping: m["keeping"].as_u64().unwrap_or(0) as u8,
                },
                role: match string_of(&m["role"]) {
                    "answers" => Role::Answers,
                    "calls" => Role::Calls,
                    _ => Role::Topic,
                },
                order: match (time(&m["order"]["sent_wait_ms"]), m["order"].as_str()) {
                    (Some(wait), _) => DeliveryOrder::Sent { wait },
                    (None, Some("newest")) => DeliveryOrder::Newest,
                    _ => DeliveryOrder::Arrival,
                },
            },
        }),
        "withdraw" => Control::Withdraw { channel },
        "want" => Control::Want { channel, wanted: flag(&m["wanted"]) },
        "get_definition" => Control::GetDefinition { channel },
        "definition" => Control::Definition { channel, text: owned("text") },
        "refuse" => Control::Refuse { channel, reason: owned("reason") },
        other => panic!("not a kind that is emitted: {other}"),
    };
    control.emit()
}

type Parse = fn(&[u8]) -> Result<Value, WireError>;

fn check(file: &str, list: &str, parse: Parse, emit: fn(&Value) -> Vec<u8>) {
    if std::env::var_os("UPDATE").is_some() {
        update(file, list, emit);
    }
    for vector in vectors(file, list) {
        let name = string_of(&vector["name"]);
        let bytes = unhex(&vector["hex"]);
        let parsed = parse(&bytes).unwrap_or_else(|e| panic!("{file}, {name}: {e}"));
        assert_eq!(parsed, vector["meaning"], "{file}, {name}");
        if vector.get("only_parse").is_none() {
            assert_eq!(hex(&emit(&vector["meaning"])), hex(&bytes), "{file}, {name}");
        }
    }
}

/// Replaces the bytes of each vector that can be emitted, and nothing else.
fn update(file: &str, list: &str, emit: fn(&Value) -> Vec<u8>) {
    const MARK: &str = "\"hex\": \"";
    let before = std::fs::read_to_string(path(file)).unwrap();
    let mut parts = before.split(MARK);
    let mut after = parts.next().unwrap().to_owned();
    for (vector, part) in vectors(file, list).iter().zip(parts) {
        let (old, rest) = part.split_once('"').unwrap();
        let emitted = vector.get("only_parse").is_none().then(|| hex(&emit(&vector["meaning"])));
        after += &[MARK, emitted.as_deref().unwrap_or(old), "\"", rest].concat();
    }
    std::fs::write(path(file), after).unwrap();
}

#[test]
fn frames_of_packets() {
    check("frames.json", "frames", frames_meaning, frames_bytes);
}

fn key(value: &Value) -> [u8; 32] {
    unhex(value).try_into().expect("32 bytes")
}

fn sealed_bytes(meaning: &Value) -> Vec<u8> {
    let m = meaning;
    let (link, number) = (number(&m["link"]) as u8, number(&m["number"]));
    let session = self::number(&m["session"]) as u32;
    let (ack_soon, relayed) = (flag(&m["ack_soon"]), m["micros"].is_null());
    let header = SessionHeader { ack_soon, relayed, link, session, number: number as u32 };
    let mut out = header.emit(1472);
    if let Some(micros) = m["micros"].as_u64() {
        out.extend_from_slice(&(micros as u32).to_le_bytes());
    }
    out.extend_from_slice(&unhex(&m["frames"]));
    let key = key(&m["key"]);
    let sealer = Sealer::new(&Split { seal: key, open: key }).expect("keys");
    sealer.seal(link, number, &mut out).expect("a whole header");
    out
}

#[test]
fn session_packets() {
    if std::env::var_os("UPDATE").is_some() {
        update("sealed.json", "packets", sealed_bytes);
    }
    for vector in vectors("sealed.json", "packets") {
        let (name, m) = (string_of(&vector["name"]), &vector["meaning"]);
        let mut bytes = unhex(&vector["hex"]);
        assert_eq!(hex(&sealed_bytes(m)), hex(&bytes), "{name}");
        let Ok(Packet::Session(header, _)) = Packet::parse(&bytes) else { panic!("{name}") };
        assert_eq!(number(&m["session"]), u64::from(header.session), "{name}");
        assert_eq!(
            (number(&m["link"]), flag(&m["ack_soon"])),
            (header.link.into(), header.ack_soon)
        );
        let whole = number(&m["number"]);
        assert_eq!(full_number(header.number, whole), whole, "{name}");
        let key = key(&m["key"]);
        let sealer = Sealer::new(&Split { seal: key, open: key }).expect("keys");
        let plain = sealer.open(header.link, whole, &mut bytes).expect("it is valid");
        assert_eq!(header.relayed, m["micros"].is_null(), "{name}");
        let clock = if header.relayed { 0 } else { 4 };
        assert_eq!(hex(&plain[clock..]), string_of(&m["frames"]), "{name}");
    }
}

/// One end of a handshake in the vectors.
struct End {
    secret: SecretKey,
    ephemeral: [u8; 32],
    session: u32,
    epoch: u64,
}

impl End {
    fn read(value: &Value) -> Self {
        Self {
            secret: SecretKey::new(key(&value["secret"])),
            ephemeral: key(&value["ephemeral"]),
            session: number(&value["session"]) as u32,
            epoch: string_of(&value["epoch"]).parse().expect("64 bits"),
        }
    }
}

/// The packets and keys that follow from the inputs of a handshake.
fn transcript(vector: &Value) -> Vec<(&'static str, Vec<u8>)> {
    let (initiator, responder) = (End::read(&vector["caller"]), End::read(&vector["called"]));
    let (now, proof) = (Instant(0), MacKey::for_receiver(&responder.secret.public()));
    let greeting = Greeting { epoch: initiator.epoch, name: string_of(&vector["caller"]["name"]) };
    let public = responder.secret.public();
    let made =
        Initiator::initiate(&initiator.secret, &public, initiator.ephemeral, &greeting.emit());
    let (mut pending, noise) = made.expect("good keys");
    let mut jar = CookieJar::default();
    let call = |jar: &CookieJar| {
        let mut packet = start_initiation(initiator.session, &noise);
        let mac1 = jar.append_macs(now, &proof, &mut packet);
        (packet, mac1)
    };
    let (first_initiation, mac1) = call(&jar);
    let mut cookie_packet = Vec::new();
    if let Some(cookie) = vector["cookie"].as_object() {
        let value = unhex(&cookie["value"]).try_into().expect("16 bytes");
        let nonce = unhex(&cookie["nonce"]).try_into().expect("12 bytes");
        cookie_packet =
            proof.cookie(initiator.session, &mac1, nonce, &value).expect("it is sealed");
        let Ok(Packet::CookieReply(cookie)) = Packet::parse(&cookie_packet) else {
            panic!("a cookie")
        };
        assert!(jar.accept(now, &proof, &mac1, &cookie));
    }
    let call = call(&jar).0;
    let Ok(Packet::Initiation(read)) = Packet::parse(&call) else { panic!("an initiation") };
    let received = ReceivedInitiation::read(&responder.secret, responder.ephemeral, read.noise)
        .expect("it is valid");
    assert_eq!(received.initiator, initiator.secret.public());
    assert_eq!(Greeting::parse(&received.payload), Ok(greeting));
    let (theirs, noise) =
        received.respond(&Verdict::Welcome.emit(responder.epoch)).expect("it answers");
    let mut answer = start_response(responder.session, initiator.session, &noise);
    answer.extend_from_slice(&MacKey::for_receiver(&initiator.secret.public()).mac(&answer));
    let (ours, payload) = pending.finish(&noise).expect("it is valid");
    assert_eq!(Verdict::parse(&payload), Ok((responder.epoch, Verdict::Welcome)));
    assert_eq!((ours.seal, ours.open), (theirs.open, theirs.seal));
    vec![
        ("caller_public", initiator.secret.public().0.to_vec()),
        ("called_public", public.0.to_vec()),
        ("first_call", first_initiation),
        ("cookie_packet", cookie_packet),
        ("call", call),
        ("answer", answer),
        ("caller_to_called", ours.seal.to_vec()),
        ("called_to_caller", ours.open.to_vec()),
    ]
}

#[test]
fn handshakes() {
    const FILE: &str = "handshake.json";
    let mut text = std::fs::read_to_string(path(FILE)).unwrap();
    for vector in vectors(FILE, "handshakes") {
        for (field, bytes) in transcript(&vector) {
            if std::env::var_os("UPDATE").is_some() {
                let old = format!("\"{field}\": {}", vector[field]);
                let at = text.find(&vector["name"].to_string()).unwrap();
                let place = at + text[at..].find(&old).unwrap();
                let new = format!("\"{field}\": \"{}\"", hex(&bytes));
                text.replace_range(place..place + old.len(), &new);
            } else {
                assert_eq!(vector[field], hex(&bytes), "{field} of {}", vector["name"]);
            }
        }
    }
    std::fs::write(path(FILE), text).unwrap();
}

fn beacon_bytes(meaning: &Value) -> Vec<u8> {
    let sender = SecretKey::new(key(&meaning["sender"]));
    let salt = string_of(&meaning["salt"]).parse().expect("64 bits");
    let peers = meaning["peers"].as_array().expect("peers").iter();
    let shared = peers.map(|peer| SharedTagKey::new(&sender, &SecretKey::new(key(peer)).public()));
    emit_beacon(salt, shared.map(|shared| shared.tag(salt, &sender.public())))
}

#[test]
fn beacons() {
    if std::env::var_os("UPDATE").is_some() {
        update("beacon.json", "beacons", beacon_bytes);
    }
    for vector in vectors("beacon.json", "beacons") {
        let (name, m) = (string_of(&vector["name"]), &vector["meaning"]);
        let bytes = unhex(&vector["hex"]);
        assert_eq!(hex(&beacon_bytes(m)), hex(&bytes), "{name}");
        let Ok(Packet::Beacon(beacon)) = Packet::parse(&bytes) else { panic!("{name}") };
        assert_eq!(string_of(&m["salt"]), beacon.salt.to_string(), "{name}");
        let sender = SecretKey::new(key(&m["sender"])).public();
        let peers = m["peers"].as_array().expect("peers");
        assert_eq!(peers.len(), beacon.tags().count(), "{name}");
        for (peer, tag) in peers.iter().zip(beacon.tags()) {
            let shared = SharedTagKey::new(&SecretKey::new(key(peer)), &sender);
            assert_eq!(shared.tag(beacon.salt, &sender), tag, "{name}: as the peer makes it");
        }
    }
}

#[test]
fn control_messages() {
    check("control.json", "controls", control_meaning, control_bytes);
}

#[test]
fn invalid_vectors_are_refused_for_the_given_reason() {
    for vector in vectors("invalid.json", "invalid") {
        let bytes = unhex(&vector["hex"]);
        let parsed = match string_of(&vector["of"]) {
            "packet" => Packet::parse(&bytes).map(|packet| json!(format!("{packet:?}"))),
            "greeting" => Greeting::parse(&bytes).map(|greeting| json!(greeting.name)),
            "frames" => frames_meaning(&bytes),
            _ => control_meaning(&bytes),
        };
        let (error, field) = match parsed {
            Ok(meaning) => panic!("{}: parsed as {meaning}", vector["name"]),
            Err(WireError::Truncated) => ("truncated", None),
            Err(WireError::VarintTooLong) => ("varint too long", None),
            Err(WireError::Magic) => ("magic", None),
            Err(WireError::Text) => ("text", None),
            Err(WireError::Value(field)) => ("value", Some(field)),
        };
        let wanted = (string_of(&vector["error"]), vector.get("field").map(string_of));
        assert_eq!((error, field), wanted, "{}", vector["name"]);
    }
}

#[test]
fn packet_numbers() {
    for vector in vectors("packet_numbers.json", "numbers") {
        let full = full_number(number(&vector["low"]) as u32, number(&vector["expected"]));
        assert_eq!(full, number(&vector["full"]), "{}", vector["name"]);
    }
}
