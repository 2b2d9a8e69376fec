// SPDX-License-Identifier: Apache-2.0
//! The data that links have used of their budgets (`peers.links[].budget`), and the file that keeps it
//! across restarts.

mod file_writer;

pub(crate) use file_writer::FileWriter;

use crate::config::{Budget, MAX_PEERS};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;
use tautline_proto::MAX_LINKS_PER_PEER;

/// Maximum number of accounts: one for each link that a file can have.
const MAX_ACCOUNTS: usize = MAX_PEERS * MAX_LINKS_PER_PEER;
/// Maximum bytes of the file.
const MAX_FILE: u64 = 2 << 20;

/// The name of a link: the peer's name in the file, and the link's name among the links of that peer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LinkName {
    pub(crate) peer: String,
    pub(crate) link: String,
}

/// The data that a link has used in the current period. Times are in seconds since 1970.
///
/// Periods follow each other without gaps, from the time at which the link was first counted.
/// Setting the clock back ends no period, because a new period would give the budget back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Account {
    begun: u64,
    used: u64,
}

impl Account {
    /// An account whose first period begins now.
    pub(crate) fn begin(now: u64) -> Self {
        Self { begun: now, used: 0 }
    }

    /// Counts IP bytes at time `now`. Begins a new period if the current one has ended.
    pub(crate) fn count(&mut self, now: u64, bytes: u64, budget: &Budget) {
        let periods = now.saturating_sub(self.begun) / budget.period.as_secs().max(1);
        if periods > 0 {
            self.begun += periods * budget.period.as_secs();
            self.used = 0;
        }
        self.used = self.used.saturating_add(bytes);
    }

    /// IP bytes used in the current period.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// IP bytes left in the current period.
    pub(crate) fn left(&self, budget: &Budget) -> u64 {
        budget.bytes.saturating_sub(self.used)
    }

    /// The start of the period.
    pub(crate) fn begun(&self) -> u64 {
        self.begun
    }

    /// The end of the period.
    pub(crate) fn end(&self, budget: &Budget) -> u64 {
        self.begun.saturating_add(budget.period.as_secs())
    }
}

/// The accounts of all links with budgets, present and former.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Accounts(BTreeMap<LinkName, Account>);

#[derive(Serialize, Deserialize)]
struct AccountsFile {
    links: Vec<AccountEntry>,
}

#[derive(Serialize, Deserialize)]
struct AccountEntry {
    peer: String,
    link: String,
    begun: u64,
    used: u64,
}

impl Accounts {
    /// Reads the accounts. A missing file means no accounts. The error describes the problem.
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                tracing::info!(file = %path.display(), "no used data is known yet: budgets begin at 0");
                return Ok(Self::default());
            }
            Err(error) => return Err(error.to_string()),
        };
        let mut text = String::new();
        let read = file.take(MAX_FILE + 1).read_to_string(&mut text);
        read.map_err(|error| error.to_string())?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text.len() as u64 > MAX_FILE {
            return Err(format!("found more than {MAX_FILE} bytes"));
        }
        let kept: AccountsFile = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let account = |it: AccountEntry| {
            let name = LinkName { peer: it.peer, link: it.link };
            (name, Account { begun: it.begun, used: it.used })
        };
        Ok(Self(kept.links.into_iter().take(MAX_ACCOUNTS).map(account).collect()))
    }

    /// The text of the file.
    pub(crate) fn to_file_text(&self) -> String {
        let links = self.0.iter().map(|(name, account)| AccountEntry {
            peer: name.peer.clone(),
            link: name.link.clone(),
            begun: account.begun,
            used: account.used,
        });
        // Numbers and strings always have a form in JSON.
        serde_json::to_string_pretty(&AccountsFile { links: links.collect() }).unwrap_or_default()
            + "\n"
    }

    /// Adds IP bytes to the account of a link, and returns that account.
    pub(crate) fn count(
        &mut self,
        name: &LinkName,
        now: u64,
        bytes: u64,
        budget: &Budget,
    ) -> Account {
        if self.0.len() >= MAX_ACCOUNTS && !self.0.contains_key(name) {
            // The oldest account belongs to a link that was removed from the file.
            let oldest = self.0.iter().min_by_key(|(_, it)| it.begun).map(|(it, _)| it.clone());
            oldest.map(|oldest| self.0.remove(&oldest));
        }
        let account = self.0.entry(name.clone()).or_insert_with(|| Account::begin(now));
        account.count(now, bytes, budget);
        *account
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;
    /// 2026-11-25 08:00 UTC.
    const NOW: u64 = 1_795_593_600;

    fn budget() -> Budget {
        Budget::parse("1MB/30d").unwrap()
    }

    fn name(link: &str) -> LinkName {
        LinkName { peer: "base".into(), link: link.into() }
    }

    #[test]
    fn a_period_begins_with_the_first_count() {
        let mut account = Account::begin(NOW);
        account.count(NOW + 1, 400_000, &budget());
        account.count(NOW + 30 * DAY - 1, 400_000, &budget());
        assert_eq!((account.used(), account.left(&budget())), (800_000, 200_000));
        assert_eq!(account.end(&budget()), NOW + 30 * DAY);
        account.count(NOW + 30 * DAY, 7, &budget());
        assert_eq!((account.begun(), account.used()), (NOW + 30 * DAY, 7));
        // The robot was off for two months.
        account.count(NOW + 100 * DAY, 9, &budget());
        assert_eq!((account.begun(), account.used()), (NOW + 90 * DAY, 9));
    }

    #[test]
    fn setting_the_clock_back_does_not_refund_a_budget() {
        let mut account = Account::begin(NOW);
        account.count(NOW, 900_000, &budget());
        for now in [0, NOW - 300 * DAY, NOW - 1, NOW] {
            account.count(now, 1000, &budget());
            assert_eq!(account.begun(), NOW, "at {now}");
        }
        assert_eq!(account.used(), 904_000);
    }

    #[test]
    fn a_changed_budget_applies_to_the_used_bytes() {
        let mut account = Account::begin(NOW);
        account.count(NOW, u64::MAX, &budget());
        account.count(NOW, 1, &budget());
        assert_eq!(account.left(&budget()), 0);
        account = Account { begun: u64::MAX, used: 5 };
        assert_eq!(account.end(&budget()), u64::MAX);
        account.count(NOW, 500_000, &budget());
        let weekly = Budget::parse("2MB/7d").unwrap();
        assert_eq!(account.left(&weekly), 1_499_995);
    }

    #[test]
    fn written_accounts_are_read_back() {
        let mut accounts = Accounts::default();
        accounts.count(&name("lte"), NOW, 5000, &budget());
        accounts.count(&name("a \"quoted\" one"), NOW, 1, &budget());
        let mut again = Accounts::parse(&accounts.to_file_text()).unwrap();
        assert_eq!(again, accounts);
        assert_eq!(again.count(&name("lte"), NOW + 1, 5, &budget()).used(), 5005);
    }

    #[test]
    fn a_missing_file_has_no_accounts_and_a_damaged_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("robot.budgets");
        assert_eq!(Accounts::load(&path), Ok(Accounts::default()));
        let whole = {
            let mut accounts = Accounts::default();
            accounts.count(&name("lte"), NOW, 5000, &budget());
            accounts.to_file_text()
        };
        let damaged = [&b""[..], b"\xff\xfe", b"{}", b"[1]", &whole.as_bytes()[..whole.len() / 2]];
        for bytes in damaged {
            std::fs::write(&path, bytes).unwrap();
            assert!(Accounts::load(&path).is_err(), "{bytes:?}");
        }
        std::fs::write(&path, vec![b' '; MAX_FILE as usize + 1]).unwrap();
        assert!(Accounts::load(&path).unwrap_err().contains("more than"));
        assert!(Accounts::load(folder.path()).is_err(), "a folder");
    }

    #[test]
    fn removed_links_do_not_fill_the_file() {
        let mut accounts = Accounts::default();
        for number in 0..MAX_ACCOUNTS as u64 + 5 {
            accounts.count(&name(&format!("link{number}")), NOW + number, 1, &budget());
        }
        assert_eq!(accounts.0.len(), MAX_ACCOUNTS);
        assert!((accounts.to_file_text().len() as u64) < MAX_FILE);
        assert!(
            !accounts.0.contains_key(&name("link4")) && accounts.0.contains_key(&name("link5"))
        );
    }
}
