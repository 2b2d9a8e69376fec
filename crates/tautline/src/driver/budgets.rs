// SPDX-License-Identifier: Apache-2.0
//! Budgets of links: counts the bytes of each link, passes the remaining budget to the protocol
//! as the link's allowance, and adds notices before a budget is used up and when it is.

use super::common::Common;
use super::entry::FileEntry;
use super::link::Link;
use crate::audit::rfc3339;
use crate::budgets::{Account, Accounts, FileWriter, LinkName};
use crate::config::{Budget, Config};
use crate::inlet::InletState;
use crate::quota::Cause;
use crate::status::BudgetReport;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;
use tautline_proto::{Duration, Instant};

/// Interval at which the data used is saved. A power failure loses the data counted since the last save.
const SAVE_EVERY: Duration = Duration::from_secs(10);
/// Used fraction of a budget from which a notice warns that the budget is nearly used up.
const WARNING_FRACTION: f64 = 0.8;

/// The budgets of the node's links.
pub(super) struct Budgets {
    /// Receives a notification when the thread that writes the file ends.
    waiting: Arc<InletState>,
    /// `None` while no link has a budget.
    open: Option<OpenAccounts>,
}

#[derive(Debug)]
struct OpenAccounts {
    path: PathBuf,
    accounts: Accounts,
    /// `None` if the thread could not be started.
    writer: Option<FileWriter>,
    /// The text that was saved last.
    saved: String,
    next_save: Instant,
    /// The current notices about each link.
    notices: BTreeMap<LinkName, BTreeSet<String>>,
    failure: Option<String>,
}

/// Returns the path of the file with the data used.
fn path(config: &Config) -> PathBuf {
    config.state.join(format!("{}.budgets", config.name))
}

fn seconds_since_1970() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs()
}

fn time(seconds_since_1970: u64) -> String {
    let since = Duration::from_secs(seconds_since_1970);
    SystemTime::UNIX_EPOCH.checked_add(since).map_or("never".into(), rfc3339)
}

/// Returns the notices that a budget needs now.
fn budget_notices(
    name: &LinkName,
    account: &Account,
    budget: &Budget,
    now: u64,
) -> BTreeSet<String> {
    let LinkName { peer, link } = name;
    let subject = format!("the budget of link '{link}' to '{peer}' ({budget})");
    let effect = "only topics with 'over_budget: true' use this link";
    let end = time(account.end(budget));
    let mut texts = BTreeSet::new();
    if account.left(budget) == 0 {
        texts.insert(format!("{subject} is used up until {end}: {effect}"));
    } else if account.used() as f64 >= budget.bytes as f64 * WARNING_FRACTION {
        texts.insert(format!(
            "{:.0} % of {subject} are used; the period ends at {end}. When the budget is used up, {effect}",
            WARNING_FRACTION * 100.0
        ));
    }
    if now < account.begun() {
        texts.insert(format!(
            "{subject}: this machine's clock is before the start of the period, {}. The period ends at \
             {end} by this clock; if the clock was wrong before, stop the daemon and remove the \
             file of used data",
            time(account.begun())
        ));
    }
    texts
}

impl Budgets {
    pub(super) fn new(waiting: Arc<InletState>) -> Self {
        Self { waiting, open: None }
    }

    /// Counts the bytes of all links since the last call, and sets their allowances. Returns whether
    /// notices have changed. Called once per second, and before and after a change of links.
    pub(super) fn check(&mut self, now: Instant, common: &mut Common, links: &mut [Link]) -> bool {
        if self.open.is_none() && links.iter().any(|link| link.budget().is_some()) {
            self.open = Some(OpenAccounts::new(now, common, self.waiting.clone()));
        }
        let Some(open) = &mut self.open else { return false };
        let mut reports = BTreeMap::new();
        let mut notices = BTreeMap::new();
        for link in links {
            if let Some((name, report, texts)) = open.check_link(common, link) {
                reports.insert(link.id, report);
                notices.insert(name, texts);
            }
        }
        common.reporter.set_budgets(reports);
        let has_changed = open.follow_notices(now, common, notices);
        open.save(now, common);
        has_changed
    }

    /// Saves the bytes of the last seconds; called when the node ends.
    pub(super) fn close(&mut self) {
        if let Some(open) = self.open.take()
            && let Some(writer) = open.writer
        {
            writer.save_last(open.accounts.to_file_text());
        }
    }
}

impl OpenAccounts {
    fn new(now: Instant, common: &mut Common, waiting: Arc<InletState>) -> Self {
        let path = path(&common.config);
        let accounts = Accounts::load(&path).unwrap_or_else(|error| {
            let text = format!(
                "{}: the data used of the budgets cannot be read, and begins at 0: {error}",
                path.display()
            );
            common.notice(now, &text);
            Accounts::default()
        });
        let ended = move |name: &str, how| waiting.thread_ended(name, how);
        let writer = FileWriter::start(path.clone(), ended);
        if let Err(error) = &writer {
            let text = format!("the data used of budgets: starting a thread: {error}");
            common.notice(now, &text);
        }
        Self {
            path,
            accounts,
            writer: writer.ok(),
            saved: String::new(),
            next_save: now,
            notices: BTreeMap::new(),
            failure: None,
        }
    }

    /// Counts the bytes of a link with a budget, and sets its allowance.
    fn check_link(
        &mut self,
        common: &mut Common,
        link: &mut Link,
    ) -> Option<(LinkName, BudgetReport, BTreeSet<String>)> {
        let endpoint = &mut common.endpoint;
        let Some(FileEntry::WithAddress(config)) = &link.entry else { return None };
        let Some(budget) = config.budget else {
            endpoint.link_mut(link.id).set_allowance(None);
            return None;
        };
        let view = endpoint.link(link.id)?;
        let total = view.stats.sent_bytes + view.stats.received_bytes + link.port.copied_bytes;
        let bytes = total.saturating_sub(link.counted_bytes);
        link.counted_bytes = total;
        let peer = endpoint.peer(view.peer).name.to_owned();
        let name = LinkName { peer, link: config.name.clone() };
        let now = seconds_since_1970();
        let account = self.accounts.count(&name, now, bytes, &budget);
        endpoint.link_mut(link.id).set_allowance(Some(account.left(&budget)));
        let report = BudgetReport {
            used_bytes: account.used(),
            total_bytes: budget.bytes,
            period_ends: time(account.end(&budget)),
            spent: account.left(&budget) == 0,
        };
        let texts = budget_notices(&name, &account, &budget, now);
        Some((name, report, texts))
    }

    /// Removes notices that are no longer true, and adds new ones. Returns whether any were removed or added.
    fn follow_notices(
        &mut self,
        now: Instant,
        common: &mut Common,
        notices: BTreeMap<LinkName, BTreeSet<String>>,
    ) -> bool {
        let before = std::mem::replace(&mut self.notices, notices.clone());
        let pairs = |of_links: BTreeMap<LinkName, BTreeSet<String>>| -> BTreeSet<(String, String)> {
            let texts = |(name, texts): (LinkName, BTreeSet<String>)| {
                texts.into_iter().map(move |text| (name.peer.clone(), text))
            };
            of_links.into_iter().flat_map(texts).collect()
        };
        let (before, after) = (pairs(before), pairs(notices));
        for (peer, text) in before.difference(&after) {
            common.shared.notices.remove(&Cause::Peer(peer.clone()), text);
        }
        for (peer, text) in after.difference(&before) {
            common.shared.notice(now, Cause::Peer(peer.clone()), text);
        }
        before != after
    }

    /// Saves the data used if it changed, and adds a notice if the last write failed.
    fn save(&mut self, now: Instant, common: &mut Common) {
        let Some(writer) = &self.writer else { return };
        let failure = writer.failure().map(|error| {
            format!(
                "{}: the data used of the budgets cannot be written: {error}; after a restart it \
                 begins at the last written value. Set 'state: FOLDER' to a folder that this user \
                 may write to",
                self.path.display()
            )
        });
        if now >= self.next_save {
            let text = self.accounts.to_file_text();
            let is_kept = text == self.saved && failure.is_none();
            if is_kept || writer.save(text.clone()) {
                (self.saved, self.next_save) = (text, now + SAVE_EVERY);
            }
        }
        let before = std::mem::replace(&mut self.failure, failure.clone());
        if before != failure {
            before.inspect(|text| common.shared.notices.remove(&Cause::Here, text));
            failure.inspect(|text| common.notice(now, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-25 08:00 UTC.
    const NOW: u64 = 1_795_593_600;

    fn notices_for(used: u64, now: u64) -> Vec<String> {
        let budget = Budget::parse("1MB/30d").unwrap();
        let name = LinkName { peer: "base".into(), link: "lte".into() };
        let mut account = Account::begin(NOW);
        account.count(NOW, used, &budget);
        budget_notices(&name, &account, &budget, now).into_iter().collect()
    }

    #[test]
    fn budget_notices_appear_at_four_fifths_and_at_the_end() {
        assert!(notices_for(799_999, NOW).is_empty());
        let [nearly] = &notices_for(800_000, NOW)[..] else { panic!() };
        assert!(
            nearly.contains("80 % of the budget of link 'lte' to 'base' (1MB/30d) are used;"),
            "{nearly}"
        );
        assert!(nearly.contains("2026-12-25T08:00:00.000Z"), "{nearly}");
        assert_eq!(
            notices_for(999_999, NOW),
            *std::slice::from_ref(nearly),
            "one notice in all of the period"
        );
        let [spent] = &notices_for(1_000_000, NOW)[..] else { panic!() };
        assert!(spent.contains("is used up until 2026-12-25T08:00:00.000Z: only"), "{spent}");
    }

    #[test]
    fn a_clock_before_the_period_is_reported() {
        let [back] = &notices_for(0, NOW - 1)[..] else { panic!() };
        assert!(back.contains("clock is before the start of the period, 2026-11-25"), "{back}");
        assert_eq!(notices_for(1_000_000, 0).len(), 2);
    }
}
