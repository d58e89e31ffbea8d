//! How names stand, for people.

use super::database::Database;
use super::transaction::{Lease, Transaction, nanos, sql};
use crate::store::{Fact, PAGE, Page, Standing};
use crate::words::error::Result;
use crate::words::name::Name;

impl Database {
    pub(super) fn inspect(&mut self, name: &Name) -> Result<Standing> {
        self.read(|transaction| {
            let Some(lease) = transaction.lease(name)? else { return Ok(nobody(name.clone())) };
            let waiters = transaction.waiters(name)?;
            let waiting = transaction.first(sql!("waiting"), &[&name.as_str()], |row| row.get(0))?;
            let waiting = waiting.unwrap_or_default();
            Ok(Standing { waiters, ..transaction.standing(&lease, waiting) })
        })
    }

    pub(super) fn list(&mut self, prefix: &str, after: Option<&Name>) -> Result<Page> {
        self.read(|transaction| {
            let mut found = 0;
            let rows = transaction.leases(prefix, after.map_or("", Name::as_str), |lease, waiting| {
                if found > PAGE || !lease.name.as_str().starts_with(prefix) {
                    return None;
                }
                let is_shown =
                    waiting > 0 || transaction.is_held(lease) || transaction.kept_back(lease).is_some();
                found += usize::from(is_shown);
                Some(is_shown)
            })?;
            let names = rows.iter().take(PAGE).map(|(lease, waiting)| transaction.standing(lease, *waiting));
            Ok(Page { names: names.collect(), more: rows.len() > PAGE })
        })
    }

    pub(super) fn examine(&mut self) -> Result<Vec<Fact>> {
        let client = self.client.clone();
        let pragma = |it: &Transaction<'_>, name| {
            it.connection.pragma_query_value(None, name, |row| {
                Ok(match row.get_ref(0)? {
                    rusqlite::types::ValueRef::Integer(number) => number.to_string(),
                    other => other.as_str().unwrap_or_default().to_owned(),
                })
            })
        };
        let fact = |key, value: String| Fact { key, value };
        self.read(|it| {
            let counts = it.first(sql!("counts"), &[], |row| {
                Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get::<_, i64>(3)?])
            })?;
            let [held, names, waiting, sessions] =
                counts.unwrap_or_default().map(|count: i64| count.to_string());
            let rights = if client.is_writable() { "read and write" } else { "read" };
            Ok(vec![
                fact("path", client.place.file.display().to_string()),
                fact("file_system", client.place.file_system.to_owned()),
                fact("rights", rights.to_owned()),
                fact("sqlite", rusqlite::version().to_owned()),
                fact("format", pragma(it, "user_version")?),
                fact("journal_mode", pragma(it, "journal_mode")?),
                // Of what grants; renewals do without, since a reboot ends them anyway.
                fact("synchronous", "full".to_owned()),
                fact("pages", pragma(it, "page_count")?),
                fact("free_pages", pragma(it, "freelist_count")?),
                fact("boot_id", client.host.boot.clone()),
                fact("time_namespace_offset_ns", client.host.offset.to_string()),
                fact("held", held),
                fact("names", names),
                fact("waiting", waiting),
                fact("sessions", sessions),
            ])
        })
    }
}

impl Transaction<'_> {
    fn standing(&self, lease: &Lease, waiting: u32) -> Standing {
        let holder = self.holder(lease);
        let revoked = holder.as_ref().filter(|_| lease.marked).map(|_| nanos(lease.ends() - self.now));
        let kept_back = if holder.is_none() { self.kept_back(lease) } else { None };
        Standing { holder, revoked, kept_back, waiting, ..nobody(lease.name.clone()) }
    }
}

fn nobody(name: Name) -> Standing {
    Standing { name, holder: None, revoked: None, kept_back: None, waiters: Vec::new(), waiting: 0 }
}
