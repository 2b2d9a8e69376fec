// SPDX-License-Identifier: Apache-2.0
//! docs/reference/audit.md, generated from the events and their quotas.

use std::fmt::Write;
use tautline::audit::{
    EVENTS, EventEntry, MAX_CHANGES, MAX_MERGED, MAX_TEXT, MAX_USERS, RECORD_ALLOWANCE,
    STRANGER_BUDGETS,
};
use tautline_cli::audit::MAX_QUEUED;

const HEAD: &str = r#"# The audit log

<!-- Written from crates/tautline/src/audit/; `UPDATE=1 cargo test -p tautline-cli --test it generated::` updates it. -->

The audit log records peers that came up or went down, with their keys and addresses; refusals; changes of the running daemon, with their authors; and published safe messages. It has one JSON object per line and is separate from the log on standard error.

```console
$ tautline audit
2026-11-23T15:04:05.678Z  started            node=robot1 version=0.2.0 pid=812 ...
2026-11-23T15:04:07.012Z  came               base  key=cHVibGlj... address=10.0.0.2:18470 session=new
2026-11-23T15:09:30.450Z  changed            by=user uid=1000 gid=1000 pid=4711 user=anna changes=["/scan: priority=9","/scan"]
2026-11-23T15:10:02.101Z  safe_message       topic=/cmd_vel silence_ms=500 published=true
$ tautline audit --follow --peer base
$ tautline audit --event refused /var/log/tautline/robot1.audit
```

## Location
`audit:` in the robot's file sets the location ([keys](configuration.md#audit)). Under the systemd unit the log is on: `LogsDirectory=` gives the daemon /var/log/tautline, and the log is NAME.audit in that folder. A daemon started by hand in a terminal has no audit log unless its file sets one, since its user may not write to /var/log.

A full file is renamed to FILE.1, the earlier FILE.1 to FILE.2, and so on; the oldest file is removed. By default there are at most 4 files of 8 MiB. New files have mode 0640, or 0600 under the systemd unit (UMask). The files must belong to the user of the daemon or to root, and neither group nor others may have write permission. The daemon refuses a link, a pipe, or a file with a second name (hard link) at this path. It also refuses a folder without the sticky bit that everybody may write to. With `audit: { to: journald }`, each line goes to the journal instead, with the fields `TAUTLINE_EVENT` and `TAUTLINE_PEER`: `journalctl -t tautline-audit TAUTLINE_PEER=base`.

The log is on the robot, so root can change it. If that matters, forward it immediately: with journald, or with any program that reads JSON lines.
"#;

/// Returns the page.
pub fn markdown() -> String {
    let mut page = HEAD.to_owned();
    let minutes = RECORD_ALLOWANCE.period.as_secs() / 60;
    let _ = write!(
        page,
        "\n## Limits\n\
         | object | maximum |\n| --- | --- |\n\
         | events about one peer | {} in {minutes} minutes, and {MAX_MERGED} records with `again` |\n\
         | events about a key that two nodes use, for each key | {} in {minutes} minutes |\n\
         | events about strangers, in each of {STRANGER_BUDGETS} groups by address | {} in {minutes} minutes, and {MAX_MERGED} records with `again` |\n\
         | events about the watchdog of one topic | {} in {minutes} minutes |\n\
         | changes by root, and by each of {MAX_USERS} other local users | {} in {minutes} minutes |\n\
         | changes by all further users together | {} in {minutes} minutes |\n\
         | changes by signals | {} in {minutes} minutes |\n\
         | bytes of one text; a longer text ends in `...` | {MAX_TEXT} |\n\
         | texts under `changes` | {MAX_CHANGES} |\n\
         | records queued for the disk | {MAX_QUEUED} |\n\n\
         Equal `refused` and `handshake_refused` events are merged. The first event is recorded \
         immediately. After {minutes} minutes, or when the daemon stops, it is recorded a second \
         time with `again`, the number of repetitions. At most {MAX_MERGED} events of each peer, \
         and of each group of strangers, are merged.\n\n\
         Events beyond these limits are counted: as `left_out` after {minutes} minutes or when the \
         daemon stops, as `lost` as soon as the log can be written again. Each cause has its own \
         limit. Safe messages are therefore recorded whatever peers do, and reloads whatever other \
         users do. Control characters in texts are escaped.\n",
        RECORD_ALLOWANCE.peer,
        RECORD_ALLOWANCE.key,
        RECORD_ALLOWANCE.stranger,
        RECORD_ALLOWANCE.safety,
        RECORD_ALLOWANCE.user,
        RECORD_ALLOWANCE.user,
        RECORD_ALLOWANCE.here
    );
    page.push_str(
        "\n## Events\nEvery line has `time` (RFC 3339, UTC, from this machine's clock) and \
         `event`. Lines about a peer have `peer`, its name in the robot's file. Programs should \
         ignore events and fields that they do not know.\n\n\
         | event | meaning | `peer` |\n| --- | --- | --- |\n",
    );
    for entry in EVENTS {
        let EventEntry { name, peer, .. } = entry;
        let _ = writeln!(page, "| [`{name}`](#{name}) | {} | {peer} |", entry.doc());
    }
    for entry in EVENTS {
        let _ = write!(page, "\n### {}\n| field | meaning |\n| --- | --- |\n", entry.name);
        for (field, doc) in entry.fields() {
            let _ = writeln!(page, "| `{field}` | {doc} |");
        }
    }
    page
}
