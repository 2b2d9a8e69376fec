// SPDX-License-Identifier: Apache-2.0
//! docs/reference/audit.md, written by `UPDATE=1 cargo test -p tautline-node --test generated`.

use super::event::{EVENTS, EventEntry, MAX_CHANGES, MAX_TEXT};
use super::recorder::{MAX_MERGED, RECORDED};
use super::writer::MAX_QUEUED;
use crate::quota::{MAX_USERS, STRANGER_ROOMS};
use std::fmt::Write;

const HEAD: &str = r#"# The audit log

<!-- Written from crates/node/src/audit/; `UPDATE=1 cargo test -p tautline-node --test generated` updates it. -->

Who came and went, by which key and from where; what was refused; what was changed on the running daemon, and by which local user; which safe messages were published. One JSON object per line, apart from the log on standard error.

```console
$ tautline audit
2026-11-23T15:04:05.678Z  started            node=robot1 version=0.1.0 pid=812 ...
2026-11-23T15:04:07.012Z  came               base  key=cHVibGlj... address=10.0.0.2:18470 session=new
2026-11-23T15:09:30.450Z  changed            by=user uid=1000 gid=1000 pid=4711 user=anna changes=["/scan: priority=9","/scan"]
2026-11-23T15:10:02.101Z  safe_message       topic=/cmd_vel silence_ms=500 published=true
$ tautline audit --follow --peer base
$ tautline audit --event refused /var/log/tautline/robot1.audit
```

## Where it is
`audit:` in the robot's file ([keys](configuration.md#audit)). Under the systemd unit it is on: `LogsDirectory=` gives the daemon /var/log/tautline, and the log is NAME.audit there. A daemon that is started by hand in a terminal keeps none unless its file says so, since its user may not write to /var/log.

A full file becomes FILE.1, that one FILE.2, and so on; the oldest is removed. With the defaults there are at most 4 files of 8 MiB. New files have mode 0640; the unit's UMask makes that 0600. The file and its older ones must be of the user that runs the daemon, or root, and neither group nor others may write them; a link, a pipe, or a file with a second name (hard link) in their place is refused, and so is a folder that everybody may write to without the sticky bit. `audit: { to: journald }` sends each line to the journal instead, with the fields `TAUTLINE_EVENT` and `TAUTLINE_PEER`: `journalctl -t tautline-audit TAUTLINE_PEER=base`.

The log is on the robot: who has the robot, or its root, can change it. Where that matters, send it on at once: by journald, or any program that reads lines of JSON.
"#;

/// Returns the page.
pub fn markdown() -> String {
    let mut page = HEAD.to_owned();
    let minutes = RECORDED.period.as_secs() / 60;
    let _ = write!(
        page,
        "\n## Limits\n\
         | what | most |\n| --- | --- |\n\
         | events about one peer | {} in {minutes} minutes, and {MAX_MERGED} records with `again` |\n\
         | events about a key in two hands, for each key | {} in {minutes} minutes |\n\
         | events about strangers, in each of {STRANGER_ROOMS} groups by address | {} in {minutes} minutes, and {MAX_MERGED} records with `again` |\n\
         | events about the watchdog of one topic | {} in {minutes} minutes |\n\
         | changes by root, and by each of {MAX_USERS} other local users | {} in {minutes} minutes |\n\
         | changes by all further users together | {} in {minutes} minutes |\n\
         | changes by signals | {} in {minutes} minutes |\n\
         | bytes of one text, longer ones end in `...` | {MAX_TEXT} |\n\
         | texts under `changes` | {MAX_CHANGES} |\n\
         | records that wait for the disk | {MAX_QUEUED} |\n\n\
         Equal `refused` and `handshake_refused` events are one: the first is recorded at once, \
         and when the {minutes} minutes are over, or the daemon stops, once more with `again`, \
         which is how often it happened after that. Up to {MAX_MERGED} of each peer, and of each \
         group of strangers, are merged so.\n\n\
         Events beyond these are counted: `left_out` when the {minutes} minutes are over or the \
         daemon stops, `lost` as soon as something can be written again. Nobody fills the room \
         of another, so safe messages are recorded whatever a peer does, and a reload whatever \
         another user does. Control characters in texts are escaped.\n",
        RECORDED.peer,
        RECORDED.key,
        RECORDED.stranger,
        RECORDED.safety,
        RECORDED.user,
        RECORDED.user,
        RECORDED.here
    );
    page.push_str(
        "\n## Events\nEvery line has `time` (RFC 3339, UTC, by this machine's clock) and \
         `event`, and `peer` as the table says: the peer's name in the robot's file. Programs \
         should pass over events and fields that they do not know.\n\n\
         | event | when | `peer` |\n| --- | --- | --- |\n",
    );
    for EventEntry { name, doc, peer, .. } in EVENTS {
        let _ = writeln!(page, "| [`{name}`](#{name}) | {doc} | {peer} |");
    }
    for entry in EVENTS {
        let _ = write!(page, "\n### {}\n| field | meaning |\n| --- | --- |\n", entry.name);
        for (field, doc) in entry.fields {
            let _ = writeln!(page, "| `{field}` | {doc} |");
        }
    }
    page
}
