// SPDX-License-Identifier: BSD-3-Clause
//! Windows as the program sees them (MPI 5.0, chapter 12): the part that `rma` does not need.

use crate::process::{Epochs, Guard, JobState};
use error::Result;
use objects::{Attributes, Handle, Info, constants as c};
use rma::{Flavor, Rma, Window};

/// What an MPI_Win names.
pub struct Win {
    /// The part of the window that `rma` needs: members, memory and epochs.
    pub window: Window,
    /// The comm over which the window's fences synchronize.
    pub comm: Handle,
    /// The window's name.
    pub name: String,
    /// The window's error handler, whose reference count in `Objects` includes this use.
    pub errhandler: Handle,
    /// The window's attributes.
    pub attributes: Attributes,
    /// The window's hints.
    pub info: Info,
    /// The memory that MPI_Win_free frees, if the library allocated it.
    pub allocated: Option<usize>,
    /// The values of the window's predefined attributes.
    pub facts: Box<WindowAttributes>,
    /// The open epochs of the window, if this process writes a trace and has opened one.
    pub epochs: Option<Box<Epochs>>,
}

/// The values of a window's predefined attributes, in the shim's numbers. The program gets pointers to them,
/// so they must not move.
pub struct WindowAttributes {
    /// MPI_WIN_BASE.
    pub base: usize,
    /// MPI_WIN_SIZE.
    pub size: i64,
    /// MPI_WIN_DISP_UNIT.
    pub disp_unit: i32,
    /// MPI_WIN_CREATE_FLAVOR.
    pub flavor: i32,
    /// MPI_WIN_MODEL, always the unified model.
    pub model: i32,
}

impl WindowAttributes {
    /// Converts the values of a window's predefined attributes to the shim's numbers.
    pub fn new(flavor: Flavor, base: usize, size: u64, disp_unit: i64) -> WindowAttributes {
        let flavor = match flavor {
            Flavor::Create => c::WIN_FLAVOR_CREATE,
            Flavor::Allocate => c::WIN_FLAVOR_ALLOCATE,
            Flavor::Shared => c::WIN_FLAVOR_SHARED,
            Flavor::Dynamic => c::WIN_FLAVOR_DYNAMIC,
        };
        let attribute = crate::shim::get().attribute;
        let flavor = attribute(c::WIN_CREATE_FLAVOR, flavor);
        let model = attribute(c::WIN_MODEL, c::WIN_UNIFIED);
        WindowAttributes { base, size: size as i64, disp_unit: disp_unit as i32, flavor, model }
    }
}

impl Win {
    /// Returns the value of a predefined keyval: for MPI_WIN_BASE the base itself, else the address of the
    /// value (MPI 5.0, section 12.2.6).
    pub fn predefined_attribute(&self, keyval: i32) -> usize {
        let facts = &*self.facts;
        match keyval {
            c::WIN_BASE => facts.base,
            c::WIN_SIZE => &raw const facts.size as usize,
            c::WIN_DISP_UNIT => &raw const facts.disp_unit as usize,
            c::WIN_CREATE_FLAVOR => &raw const facts.flavor as usize,
            _ => &raw const facts.model as usize,
        }
    }
}

impl JobState {
    /// Returns the window of a handle, and the state that all windows share.
    #[inline(always)]
    pub(crate) fn window(&mut self, win: Handle) -> Result<(&mut Window, &mut Rma)> {
        Ok((&mut self.windows.get_mut(win)?.window, &mut self.rma))
    }
}

/// How often a wait looks at its window before it makes progress. So many looks take some microseconds.
const LOOKS: u32 = 1000;

impl Guard {
    /// Waits until the member `rank` of a window has answered all requests of this process, or, if `rank` is
    /// None, every member. Returns at once if the window lies on one host.
    #[inline(always)]
    pub(crate) fn wait_for_answers(&mut self, win: Handle, rank: Option<i32>) -> Result<()> {
        if !self.job().window(win)?.0.spans_hosts() {
            return Ok(());
        }
        self.wait_window(win, |window, _| Ok(window.is_quiet(rank)))
    }

    /// Waits until this process's operations on the member `rank` of a window, or on every member if `rank`
    /// is None, no longer need this process's memory.
    #[inline(always)]
    pub(crate) fn wait_for_local_ends(&mut self, win: Handle, rank: Option<i32>) -> Result<()> {
        if !self.job().window(win)?.0.spans_hosts() {
            return Ok(());
        }
        self.wait_window(win, |window, _| Ok(window.is_done_here(rank)))
    }

    /// Waits until `ready` is true of a window.
    #[inline]
    pub(crate) fn wait_window(
        &mut self,
        win: Handle,
        mut ready: impl FnMut(&mut Window, &Rma) -> Result<bool>,
    ) -> Result<()> {
        // The condition mostly holds at once or soon, and a look is cheaper than a round of progress.
        let looks = if self.is_alone() { LOOKS } else { 1 };
        let (window, rma) = self.job().window(win)?;
        for _ in 0..looks {
            if ready(window, rma)? {
                return Ok(());
            }
        }
        self.wait(|process| match process.job().window(win) {
            Ok((window, rma)) => match ready(window, rma) {
                Ok(false) => None,
                Ok(true) => Some(Ok(())),
                Err(error) => Some(Err(error)),
            },
            // Another thread has freed the window.
            Err(error) => Some(Err(error)),
        })
    }
}
