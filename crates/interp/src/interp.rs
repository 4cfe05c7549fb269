//! The room's front: started on a keeper, gives cells.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use ringfence_frame::keeper::Limiter;
use ringfence_op::{CallLimits, ImageLimits, RootSpec, WorkspaceId};

use crate::cell::Cell;
use crate::error::LeaseError;
use crate::keeper_link::KeeperLink;
use crate::limits::GONE_WAIT_MAX;
use crate::memory::Memory;
use crate::pool::{Pool, PoolConfig, Renewal};
use crate::sweep::Sweep;

/// How interpreters are kept and called.
#[derive(Debug, Clone)]
pub struct InterpConfig {
    /// Cells of the first image that wait ready-made for a lease.
    pub pool_size: usize,
    /// How many may wait when demand is high.
    pub pool_max: usize,
    /// Where it is looked at whether there is memory for another cell.
    pub memory: Arc<Memory>,
    /// When a zygote is replaced.
    pub renewal: Renewal,
    /// Where workspaces do not share zygotes: how many zygotes of workspaces there may be at the same time, one that is
    /// nobody's yet counted in, those that are being replaced aside. `None` is one of each image for all.
    pub zygotes_apart: Option<usize>,
    /// The limits of a call.
    pub calls: CallLimits,
}

/// What every cell has in common.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) keeper: KeeperLink,
    pub(crate) limiter: Limiter,
    pub(crate) calls: CallLimits,
    pub(crate) sweep: Arc<Sweep>,
    pub(crate) memory: Arc<Memory>,
}

/// Makes and hands out cells. Clones are handles to the same one.
#[derive(Debug, Clone)]
pub struct Interp {
    shared: Arc<Shared>,
    pool: Arc<Pool>,
    pool_size: usize,
}

impl Interp {
    /// Takes over a started keeper's socket and begins to fill the pool; needs a tokio runtime. `images` are those of
    /// the keeper's configuration, in its order; the first is the default.
    ///
    /// # Errors
    /// When the socket cannot be registered with the runtime.
    pub fn start(
        keeper: OwnedFd,
        limiter: Limiter,
        images: &[RootSpec],
        config: InterpConfig,
    ) -> Result<Self, LeaseError> {
        // Nobody asks which cells of a set are gone where a set is everybody's.
        let link = KeeperLink::start(keeper, config.zygotes_apart.is_some());
        let (keeper, news) = link.map_err(LeaseError::io("watch the keeper's socket"))?;
        let memory = Arc::clone(&config.memory);
        let shared = Arc::new(Shared { keeper, limiter, calls: config.calls, sweep: Arc::default(), memory });
        let pool_config = PoolConfig {
            size: config.pool_size,
            most: config.pool_max,
            renewal: config.renewal,
            apart: config.zygotes_apart,
        };
        let pool = Pool::start(Arc::clone(&shared), images, pool_config, news);
        Ok(Interp { shared, pool, pool_size: config.pool_size })
    }

    /// The name of an image by its index.
    #[must_use]
    pub fn image_name(&self, image: u32) -> Option<Arc<str>> {
        self.pool.image_name(image as usize)
    }

    /// Takes in an image that the keeper was given while it runs, and tells its index: the keeper counts as this does.
    #[must_use]
    pub fn add_image(&self, name: &str, has_python: bool, limits: ImageLimits) -> u32 {
        u32::try_from(self.pool.add_image(name, has_python, limits)).unwrap_or(u32::MAX)
    }

    /// What an image says of the limits of its cells.
    #[must_use]
    pub fn image_limits(&self, image: u32) -> ImageLimits {
        self.pool.image_limits(image as usize)
    }

    /// A cell of the image with an interpreter that serves: from the pool, else made now. Where workspaces do not share
    /// zygotes, it is one that has never forked for another workspace than this, and never will.
    ///
    /// # Errors
    /// When none could be made in time, or none is made any more; when other workspaces have all the zygotes that there may
    /// be.
    pub async fn lease(&self, image: u32, workspace: Option<&WorkspaceId>) -> Result<Cell, LeaseError> {
        // The pool hears of each cell's end a moment later: what is ready in it may be dead with the keeper.
        if self.shared.keeper.status().borrow().closed {
            return Err(LeaseError::KeeperGone);
        }
        self.pool.lease(image as usize, workspace).await
    }

    /// How many cells wait ready-made.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.pool.readiness().borrow().ready
    }

    /// How many zygotes are one workspace's, or in reserve for one; none where workspaces share them.
    #[must_use]
    pub fn zygotes_apart(&self) -> usize {
        self.pool.apart()
    }

    /// Whether leases are refused for want of memory.
    #[must_use]
    pub fn is_short_of_memory(&self) -> bool {
        self.shared.memory.is_short() || self.pool.is_short_of_memory()
    }

    /// Waits for the pool's first cell, so that a start that cannot work is told at once. Without a pool, one cell is
    /// made for it; where there is no memory for it now, that is nothing to fail by.
    ///
    /// # Errors
    /// Why the first attempt failed.
    pub async fn warmed(&self) -> Result<(), LeaseError> {
        if self.pool_size == 0 {
            return match self.lease(0, None).await {
                Ok(cell) => {
                    // Until then its zygote is in use.
                    cell.destroy().await;
                    Ok(())
                }
                Err(LeaseError::ShortOfMemory) => Ok(()),
                Err(error) => Err(error),
            };
        }
        let mut readiness = self.pool.readiness();
        let first = readiness.wait_for(|pool| pool.ready > 0 || pool.failures > 0).await.map(|pool| *pool);
        match first {
            Ok(pool) if pool.ready > 0 => Ok(()),
            _ => Err(self.pool.take_error().unwrap_or(LeaseError::KeeperGone)),
        }
    }

    /// Resolves when the keeper is gone, and with it every cell.
    pub async fn closed(&self) {
        let _ = self.shared.keeper.status().wait_for(|status| status.closed).await;
    }

    /// Hands out nothing more, and destroys what is ready or in the making: whoever waits for a cell is told at once,
    /// however long it would have taken. Leased cells go on.
    pub fn close(&self) {
        self.pool.close();
    }

    /// [Closes](Self::close), and waits, bounded, until the last cell is gone. Leased cells are their holders' to drop.
    pub async fn shutdown(&self) {
        self.close();
        let mut status = self.shared.keeper.status();
        // The pool's destructions are sent: they count as cells until they are answered.
        let empty = status.wait_for(|status| status.closed || status.cells == 0);
        if tokio::time::timeout(GONE_WAIT_MAX, empty).await.is_err() {
            tracing::warn!(wait = ?Duration::from_secs(GONE_WAIT_MAX.as_secs()), "cells were still there at the end");
        }
    }
}
