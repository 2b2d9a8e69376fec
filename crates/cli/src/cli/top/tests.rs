// SPDX-License-Identifier: Apache-2.0
//! Tests of the screen, drawn on a terminal in memory.

use super::fixture::status;
use super::view::{self, Choices, Sort};
use super::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use tautline::status::TeamReport;

fn drawn_screen(current: &Status, choices: &Choices, width: u16, height: u16) -> Buffer {
    let rates = rates::between(Some(&status(100.0)), current);
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| view::draw(current, &rates, choices, frame.area(), frame.buffer_mut()))
        .unwrap();
    terminal.backend().buffer().clone()
}

fn lines(buffer: &Buffer) -> Vec<String> {
    let rows = buffer.content.chunks(usize::from(buffer.area.width));
    rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned())
        .collect()
}

fn picture(choices: &Choices, width: u16, height: u16) -> Vec<String> {
    lines(&drawn_screen(&status(102.0), choices, width, height))
}

#[test]
fn all_views_fit_on_80_by_24() {
    let choices = Choices { keys: true, ..Choices::default() };
    let expected = include_str!("golden_80x24.txt");
    let now = format!("{}\n", picture(&choices, 80, 24).join("\n"));
    if std::env::var_os("UPDATE").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/cli/top/golden_80x24.txt");
        std::fs::write(path, &now).unwrap();
        return;
    }
    assert_eq!(now, expected, "UPDATE=1 accepts the new picture");
}

#[test]
fn names_are_not_cut_in_a_wide_terminal() {
    let wide = picture(&Choices::default(), 160, 40).join("\n");
    assert!(wide.contains("/camera/front/image_color/compressed"), "{wide}");
    assert!(wide.contains("expired, "), "{wide}");
    assert!(wide.contains("[fe80::3%eth0]:18470"), "{wide}");
}

#[test]
fn a_wide_terminal_shows_the_links_of_topics_and_their_state() {
    let mut now = status(102.0);
    (now.links[0].stalled, now.links[0].state) = (true, "stalled".into());
    let bytes = &mut now.topics[1].links.as_mut().unwrap().bytes;
    *bytes.get_mut("lte").unwrap() += 1000;
    let of = |width| lines(&drawn_screen(&now, &Choices::default(), width, 40)).join("\n");
    let wide = of(180);
    assert!(wide.contains("LINKS") && wide.contains("stripe: lte 100 %"), "{wide}");
    assert!(wide.contains("stalled"), "{wide}");
    assert!(wide.contains("lte 100 % (metered)"), "{wide}");
    assert!(wide.contains("BUDGET") && wide.contains("4.10GB/5.00GB"), "{wide}");
    assert!(!of(160).contains("LINKS"), "there is no space");
}

#[test]
fn top_works_at_any_terminal_size() {
    for (width, height) in [(1, 1), (10, 3), (20, 5), (40, 10), (60, 12), (300, 100)] {
        picture(&Choices { keys: true, ..Choices::default() }, width, height);
    }
}

#[test]
fn sorting_changes_the_order_and_scrolling_hides_the_first() {
    let first = |choices: &Choices| picture(choices, 100, 40)[4].clone();
    assert!(
        first(&Choices { sort: Sort::Priority, ..Choices::default() }).starts_with("< /cmd_vel")
    );
    assert!(
        first(&Choices { sort: Sort::Delay, ..Choices::default() }).starts_with("< /base/plan")
    );
    let small = picture(&Choices { scrolled: 1, ..Choices::default() }, 100, 12);
    assert!(small[4].contains("compressed"), "{small:?}");
}

#[test]
fn colours_are_used_only_where_allowed() {
    let has_colour = |colours: bool| {
        let choices = Choices { colours, ..Choices::default() };
        drawn_screen(&status(102.0), &choices, 100, 30)
            .content
            .iter()
            .any(|cell| cell.fg != Color::Reset)
    };
    assert!(has_colour(true));
    assert!(!has_colour(false));
}

#[test]
fn problems_are_shown_next_to_the_name() {
    let choices = Choices { trouble: "no daemon answers".into(), ..Choices::default() };
    assert!(picture(&choices, 100, 30)[0].contains("no daemon answers"));
}

#[test]
fn keys_match_the_help_line() {
    let press =
        |choices: &mut Choices, code| apply(KeyEvent::new(code, KeyModifiers::NONE), choices, 3);
    let mut choices = Choices::default();
    assert!(!press(&mut choices, KeyCode::Char('p')) && choices.paused);
    assert!(!press(&mut choices, KeyCode::Char('s')) && choices.sort == Sort::Priority);
    (0..9).for_each(|_| assert!(!press(&mut choices, KeyCode::Down)));
    assert_eq!(choices.scrolled, 2);
    assert!(press(&mut choices, KeyCode::Char('q')));
    assert!(apply(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL), &mut choices, 3));
}

#[test]
fn a_single_print_has_all_rows_and_no_keys() {
    let text = as_text(&status(100.0), &status(101.0), 120);
    assert!(text.contains("/base/plan") && text.contains("robot2"), "{text}");
    assert!(!text.contains("quit"));
    assert!(text.contains("not taken"), "{text}");
}

/// What people and Prometheus see of a node.
fn views(earlier: &Status, now: &Status) -> String {
    let rates = serde_json::to_string_pretty(&rates::between(Some(earlier), now)).unwrap();
    let screens = [80, 120, 200].map(|width| as_text(earlier, now, width));
    let [words, metrics] =
        [crate::cli::status::in_words(now), tautline_cli::metrics::openmetrics(now)];
    [words, metrics, rates, screens.join("\n")].join("\n")
}

fn compare_with_file(name: &str, seen: &str) {
    let file = format!("{}/src/cli/top/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, seen).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(seen, written, "UPDATE=1 accepts the new views");
}

#[test]
fn all_views_of_a_relay_with_teams() {
    let team = |name: &str, up, max_bps, dropped: &[(&str, u64)]| TeamReport {
        name: name.into(),
        members: 4,
        up,
        max_bps,
        forwarded_packets: 51_200,
        sent_bytes: 40_000_000,
        queued_bytes: 12_000,
        max_queued_bytes: 1_000_000,
        dropped: dropped.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect(),
    };
    let teams = vec![
        team("blue", 4, Some(20_000_000), &[]),
        team("red", 3, None, &[("team_full", 80), ("no_route", 7)]),
    ];
    let earlier = Status { teams, ..status(100.0) };
    let mut now = Status { teams: earlier.teams.clone(), ..status(104.0) };
    now.teams[0].sent_bytes += 4_000_000;
    now.teams[0].forwarded_packets += 4000;
    now.teams[1].dropped.insert("team_full".into(), 92);
    compare_with_file("golden_teams.txt", &views(&earlier, &now));
}

#[test]
fn all_views_of_a_robot_with_many_links() {
    let earlier: Status =
        serde_json::from_str(include_str!("../../../../tautline/src/status/fixture_links.json"))
            .unwrap();
    let mut now = earlier.clone();
    now.uptime_s += 4.0;
    for (number, link) in (1..).zip(&mut now.links) {
        link.acked_packets += 90 * number;
        link.lost_packets += 10;
        link.sent_bytes += 100_000 * number;
        link.repair_bytes += 1000 * number;
        link.received_bytes += 1000 * number;
    }
    compare_with_file("golden_links.txt", &views(&earlier, &now));
}
