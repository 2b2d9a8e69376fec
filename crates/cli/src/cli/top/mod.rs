// SPDX-License-Identifier: Apache-2.0
//! `tautline top`.

#[cfg(test)]
mod fixture;
mod rows;
#[cfg(test)]
mod tests;
mod view;

use super::find::Daemon;
use super::{Failure, output};
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal;
use ratatui::layout::Rect;
use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;
use tautline::rates;
use tautline::status::Status;
use tautline_cli::control::Client;
use view::Choices;

/// Time between two snapshots.
const INTERVAL: Duration = Duration::from_secs(1);
/// Maximum delay of a key press.
const KEY_WAIT: Duration = Duration::from_millis(100);
const WIDTH_WITHOUT_TERMINAL: u16 = 160;
/// Maximum lines that `--once` prints.
const MAX_HEIGHT: usize = 2000;

/// Arguments of `tautline top`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tautline top\n  tautline top --node robot1\n  tautline top --once\n  \
                        tautline top --json | jq .topics\n\n\
                        Keys: q quit, p pause, s next sort order, up and down scroll.\n\
                        > is sent by this robot, < is received. Rates and delays cover the last second.\n\
                        DELIV (delivered) and DROPPED count since the daemon started; 'now 41%' is the\n\
                        fraction dropped in the last ten seconds. QUEUE counts queued messages. CAN SEND is\n\
                        the available rate of a link."
)]
pub struct Arguments {
    /// Print one JSON line per second
    #[arg(long)]
    json: bool,
    /// Print the screen after one second, then stop
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// Shows a running daemon live.
pub fn top(arguments: &Arguments) -> Result<(), Failure> {
    let mut client = arguments.daemon.connect()?;
    let first = client.status().map_err(Failure::new)?;
    match (arguments.json, arguments.once) {
        (true, once) => print_json_lines(client, first, once),
        (false, true) => print_once(client, &first),
        (false, false) if !std::io::stdout().is_terminal() => Err(Failure::new(
            "top needs a terminal; without one, use: tautline top --once, or --json",
        )),
        (false, false) => run_interactive(client, first, arguments.daemon.clone()),
    }
}

fn print_json_lines(mut client: Client, mut previous: Status, once: bool) -> Result<(), Failure> {
    loop {
        std::thread::sleep(INTERVAL);
        let current = client.status().map_err(Failure::new)?;
        let rates = rates::between(Some(&previous), &current);
        let line = serde_json::to_string(&rates).map_err(Failure::new)?;
        output::print(&format!("{line}\n"))?;
        if once {
            return Ok(());
        }
        previous = current;
    }
}

fn print_once(mut client: Client, first: &Status) -> Result<(), Failure> {
    std::thread::sleep(INTERVAL);
    let second = client.status().map_err(Failure::new)?;
    output::print(&as_text(first, &second, width()))
}

/// Returns the terminal's width; for a file or pipe, a width that leaves names whole.
fn width() -> u16 {
    let of_terminal = std::io::stdout().is_terminal().then(|| terminal::size().ok()).flatten();
    of_terminal.map_or(WIDTH_WITHOUT_TERMINAL, |(columns, _)| columns)
}

/// Returns the whole screen as lines without colour.
fn as_text(previous: &Status, current: &Status, width: u16) -> String {
    let height = view::full_height(current).min(MAX_HEIGHT) as u16;
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    let rates = rates::between(Some(previous), current);
    view::draw(current, &rates, &Choices::default(), buffer.area, &mut buffer);
    let rows = buffer.content.chunks(usize::from(width.max(1)));
    let lines = rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>());
    let text: Vec<String> = lines.map(|line| line.trim_end().to_owned()).collect();
    format!("{}\n", text.join("\n").trim_end())
}

/// A message of the watching thread: a snapshot, or the reason why there is none.
type SnapshotResult = Result<Status, String>;

fn run_interactive(client: Client, first: Status, daemon: Daemon) -> Result<(), Failure> {
    let (sender, snapshots) = sync_channel(1);
    // A separate thread keeps the keys responsive while the daemon is slow to answer. The thread
    // ends with the channel.
    let watching = std::thread::Builder::new().spawn(move || watch(client, &daemon, &sender));
    watching.map_err(|e| Failure::new(format!("starting a thread: {e}")))?;
    let mut terminal = ratatui::try_init().map_err(|e| Failure::new(format!("terminal: {e}")))?;
    let result = show(&mut terminal, first, &snapshots);
    ratatui::restore();
    result.map_err(|e| Failure::new(format!("terminal: {e}")))
}

fn watch(client: Client, daemon: &Daemon, snapshots: &SyncSender<SnapshotResult>) {
    let mut client = Some(client);
    loop {
        std::thread::sleep(INTERVAL);
        let connected = client.take().map_or_else(|| daemon.connect(), Ok);
        let snapshot = connected.map_err(|failure| failure.text).and_then(|mut connected| {
            let status = connected.status().map_err(|e| e.to_string())?;
            client = Some(connected);
            Ok(status)
        });
        if snapshots.send(snapshot).is_err() {
            return;
        }
    }
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    first: Status,
    snapshots: &Receiver<SnapshotResult>,
) -> std::io::Result<()> {
    let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut choices = Choices { colours, keys: true, ..Choices::default() };
    let mut rates = rates::between(None, &first);
    let mut current = first;
    loop {
        terminal.draw(|frame| {
            view::draw(&current, &rates, &choices, frame.area(), frame.buffer_mut())
        })?;
        if event::poll(KEY_WAIT)?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
            && apply(key, &mut choices, current.topics.len())
        {
            return Ok(());
        }
        match snapshots.try_recv() {
            Ok(Ok(status)) if !choices.paused => {
                rates = rates::between(Some(&current), &status);
                current = status;
                choices.trouble.clear();
            }
            Ok(Ok(_)) => choices.trouble.clear(),
            Ok(Err(reason)) => choices.trouble = reason.lines().next().unwrap_or_default().into(),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => {}
        }
    }
}

/// Applies a key; returns `true` if the key quits.
fn apply(key: KeyEvent, choices: &mut Choices, topics: usize) -> bool {
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return true,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
        KeyCode::Char('p' | ' ') => choices.paused = !choices.paused,
        KeyCode::Char('s') => choices.sort = choices.sort.next_order(),
        KeyCode::Down | KeyCode::Char('j') => {
            choices.scrolled = (choices.scrolled + 1).min(topics.saturating_sub(1));
        }
        KeyCode::Up | KeyCode::Char('k') => choices.scrolled = choices.scrolled.saturating_sub(1),
        _ => {}
    }
    false
}
