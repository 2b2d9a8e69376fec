// SPDX-License-Identifier: Apache-2.0
//! The golden vectors of spec/vectors: bytes and what they mean.
//!
//! `UPDATE=1` writes the bytes anew from the meanings, which are written by
//! hand: a change of format shows as a diff of both.
#![expect(clippy::disallowed_methods, reason = "the vectors are files")]

use serde_json::{Value, json};
use std::path::PathBuf;
use tautline_proto::wire::WireError;
use tautline_proto::wire::control::{Control, Offer};
use tautline_proto::wire::cursor::Reader;
use tautline_proto::wire::frame::{Ack, Data, Fragment, Frame, put_goodbye, put_ping};
use tautline_proto::wire::packet::{Hello, Packet, Refusal, SessionHeader, full_number};
use tautline_proto::{Duration, OfferedQos, OfferedTopic, RefusalReason, Role};

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

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("not text: {value}"))
}

fn flag(value: &Value) -> bool {
    value.as_bool().unwrap_or_else(|| panic!("not true or false: {value}"))
}

const REASONS: [(&str, RefusalReason); 4] = [
    ("unknown peer", RefusalReason::UnknownPeer),
    ("version", RefusalReason::Version),
    ("name taken", RefusalReason::NameTaken),
    ("address", RefusalReason::Address),
];

fn frames(bytes: &[u8]) -> Result<Vec<Frame<'_>>, WireError> {
    let mut reader = Reader::new(bytes);
    let mut frames = Vec::new();
    while !reader.is_empty() {
        frames.push(Frame::parse(&mut reader)?);
    }
    Ok(frames)
}

/// What a packet says.
fn packet_meaning(bytes: &[u8]) -> Result<Value, WireError> {
    Ok(match Packet::parse(bytes)? {
        Packet::Hello(h) => json!({"hello": {
            "name": h.name, "session": h.session, "your_session": h.your_session,
            "epoch": h.epoch.to_string(),
        }}),
        Packet::Refusal(r) => {
            let reason = REASONS.iter().find(|(_, reason)| *reason == r.reason).expect("known").0;
            json!({"refusal": {"name": r.name, "reason": reason}})
        }
        Packet::OtherVersion { version, name, is_refusal } => {
            json!({"other_version": {"version": version, "name": name, "is_refusal": is_refusal}})
        }
        Packet::Session(header, rest) => json!({"session": {
            "session": header.session, "link": header.link, "number": header.number,
            "ack_soon": header.ack_soon,
            "frames": frames(rest)?.iter().map(frame_meaning).collect::<Vec<_>>(),
        }}),
    })
}

fn frame_meaning(frame: &Frame<'_>) -> Value {
    match frame {
        Frame::Data(data, payload) => json!({"data": {
            "channel": data.channel, "number": data.number, "source": data.source,
            "encoded": data.encoded, "age_us": data.age.as_micros() as u64,
            "fragment": data.fragment.map(|f| json!({"total": f.total, "offset": f.offset})),
            "payload": hex(payload),
        }}),
        Frame::Ack(ack) => json!({"ack": {
            "link": ack.link, "delay_us": ack.delay.as_micros() as u64, "ranges": ack.ranges,
        }}),
        Frame::Ping => json!("ping"),
        Frame::Goodbye => json!("goodbye"),
        Frame::Unknown(kind) => json!({"unknown": kind}),
    }
}

fn control_meaning(bytes: &[u8]) -> Result<Value, WireError> {
    Ok(match Control::parse(bytes)? {
        Control::Offer(Offer { channel, topic: t }) => json!({"offer": {
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
        }}),
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

/// The bytes that say it.
fn packet_bytes(meaning: &Value) -> Vec<u8> {
    if let Some(h) = meaning.get("hello") {
        let epoch = text(&h["epoch"]).parse().expect("64 bits");
        let (session, your_session) = (number(&h["session"]) as u32, number(&h["your_session"]));
        let your_session = your_session as u32;
        return Hello { name: text(&h["name"]), session, your_session, epoch }.emit();
    }
    if let Some(r) = meaning.get("refusal") {
        let reason = REASONS.iter().find(|(name, _)| *name == text(&r["reason"])).expect("known").1;
        return Refusal { name: text(&r["name"]), reason }.emit();
    }
    let s = meaning.get("session").expect("a kind of packet that is emitted");
    let header = SessionHeader {
        session: number(&s["session"]) as u32,
        link: number(&s["link"]) as u8,
        number: number(&s["number"]) as u32,
        ack_soon: flag(&s["ack_soon"]),
    };
    let mut out = header.emit(1472);
    s["frames"].as_array().expect("frames").iter().for_each(|frame| put_frame(frame, &mut out));
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
        let delay = Duration::from_micros(number(&a["delay_us"]));
        return Ack { link: number(&a["link"]) as u8, delay, ranges }.emit(out);
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
    };
    data.emit(&unhex(&d["payload"]), out);
}

fn time(ms: &Value) -> Option<Duration> {
    ms.as_u64().map(Duration::from_millis)
}

fn control_bytes(meaning: &Value) -> Vec<u8> {
    let (kind, m) = meaning.as_object().and_then(|m| m.iter().next()).expect("one kind");
    let channel = number(&m["channel"]);
    let owned = |field: &str| text(&m[field]).to_owned();
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
                },
                role: match text(&m["role"]) {
                    "answers" => Role::Answers,
                    "calls" => Role::Calls,
                    _ => Role::Topic,
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
        let name = text(&vector["name"]);
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
fn hellos() {
    check("hello.json", "packets", packet_meaning, packet_bytes);
}

#[test]
fn refusals() {
    check("refusal.json", "packets", packet_meaning, packet_bytes);
}

#[test]
fn session_packets() {
    check("session.json", "packets", packet_meaning, packet_bytes);
}

#[test]
fn control_messages() {
    check("control.json", "controls", control_meaning, control_bytes);
}

#[test]
fn what_is_invalid_is_refused_for_the_reason_given() {
    for vector in vectors("invalid.json", "invalid") {
        let parse = if vector["of"] == "packet" { packet_meaning } else { control_meaning };
        let (error, field) = match parse(&unhex(&vector["hex"])) {
            Ok(meaning) => panic!("{}: parsed as {meaning}", vector["name"]),
            Err(WireError::Truncated) => ("truncated", None),
            Err(WireError::VarintTooLong) => ("varint too long", None),
            Err(WireError::Magic) => ("magic", None),
            Err(WireError::Text) => ("text", None),
            Err(WireError::Value(field)) => ("value", Some(field)),
        };
        let wanted = (text(&vector["error"]), vector.get("field").map(text));
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
