//! What is given back by being dropped: a place for a session, a cell in a call, a call that is counted.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringfence_interp::Cell;
use ringfence_op::{Fault, Tenant, WorkspaceId};

use crate::fair;
use crate::refusal::{draining, no_room, no_share};
use crate::session::Session;
use crate::sessions::Inner;

/// Room for one session, until it is filled or given up.
pub(crate) struct Reserved<'a> {
    inner: &'a Arc<Inner>,
    /// Whose it is counted as, until the session is.
    owner: Option<WorkspaceId>,
}

impl<'a> Reserved<'a> {
    pub(crate) fn new(inner: &'a Arc<Inner>, tenant: Option<&Tenant>) -> Result<Self, Fault> {
        let mut table = inner.table();
        if table.draining {
            return Err(draining());
        }
        // Cells that are on their way out still take memory: they may be as many again, not more.
        let full = table.sessions.len() + table.creating >= inner.config.sessions_max;
        if full || table.ending >= inner.config.sessions_max.max(1) {
            return Err(no_room(&table, inner.clock));
        }
        if let Some(tenant) = tenant {
            let room = table.room(&tenant.workspace, inner.config.sessions_max);
            fair::admit(room, tenant, inner.config.sharing)
                .map_err(|refused| no_share(refused, &tenant.workspace, &table, inner.clock))?;
            *table.held.entry(tenant.workspace.clone()).or_default() += 1;
        }
        table.creating += 1;
        Ok(Reserved { inner, owner: tenant.map(|tenant| tenant.workspace.clone()) })
    }

    /// Puts the session on the table, unless the server has begun to shut down meanwhile.
    pub(crate) fn fill(mut self, session: Arc<Session>) -> Result<(), Fault> {
        let look = session.look_again();
        let mut table = self.inner.table();
        if table.draining {
            drop(table);
            self.inner.end(&session);
            return Err(draining());
        }
        table.sessions.insert(session.terms.id, session);
        // From here on it is the session that counts.
        self.owner = None;
        if table.next_look.is_none_or(|next| look < next) {
            self.inner.sooner.notify_one();
        }
        Ok(())
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let mut table = self.inner.table();
        table.creating -= 1;
        table.let_go(self.owner.as_ref());
        drop(table);
        self.inner.calmer.notify_waiters();
    }
}

/// A cell in the hands of a call. Whole, it goes back to its session; what a call was cut off in is destroyed.
pub(crate) struct Lent<'a> {
    pub(crate) inner: &'a Arc<Inner>,
    pub(crate) session: &'a Arc<Session>,
    pub(crate) cell: Option<Cell>,
    /// The call came to its end.
    pub(crate) whole: bool,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let Some(cell) = self.cell.take() else { return };
        if self.whole && !cell.died() {
            if let Some(cell) = self.session.put_back(cell) {
                self.inner.tear_down(cell);
            }
        } else {
            self.inner.tear_down(cell);
            self.inner.end(self.session);
        }
    }
}

/// A call that is counted.
pub(crate) struct Counted {
    pub(crate) inner: Arc<Inner>,
}

impl Counted {
    pub(crate) fn new(inner: &Arc<Inner>) -> Self {
        inner.calls.fetch_add(1, Ordering::AcqRel);
        Counted { inner: Arc::clone(inner) }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.inner.calls.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.inner.calmer.notify_waiters();
        }
    }
}
