// SPDX-License-Identifier: BSD-3-Clause
//! RMA windows as the program sees them (MPI 5.0, chapter 12): the facts about a window that `rma` does not
//! need.

use crate::process::{Epochs, Guard, JobState};
use error::Result;
use objects::{Attributes, Handle, Info, constants as c};
use rma::{Flavor, Rma, Window};

/// The window that an MPI_Win handle names.
pub struct Win {
    /// The part of the window that `rma` needs: members, memory and epochs.
    pub window: Window,
    /// The library's own comm, with the window's members, over which fences synchronize.
    pub comm: Handle,
    /// The name that the program has given the window. Empty if it has given none.
    pub name: String,
    /// The window's error handler. The reference count of the error handler in `Objects` counts this window.
    pub errhandler: Handle,
    /// The window's attributes.
    pub attributes: Attributes,
    /// The window's hints.
    pub info: Info,
    /// The address of the memory that the library allocated for the window, and that MPI_Win_free frees. None
    /// if the program provided the memory.
    pub allocated: Option<usize>,
    /// The values of the window's predefined attributes.
    pub facts: Box<WindowAttributes>,
    /// The open epochs of the window. None unless this process writes a trace and has opened an epoch.
    pub epochs: Option<Box<Epochs>>,
}

/// The values of a window's predefined attributes. Constants such as the flavor have the values of the
/// program's ABI (the standard's or MPICH's). The program gets pointers to these values, so they must not
/// move.
pub struct WindowAttributes {
    /// The value of MPI_WIN_BASE, an address.
    pub base: usize,
    /// The value of MPI_WIN_SIZE, in bytes.
    pub size: i64,
    /// The value of MPI_WIN_DISP_UNIT, in bytes.
    pub disp_unit: i32,
    /// The value of MPI_WIN_CREATE_FLAVOR.
    pub flavor: i32,
    /// The value of MPI_WIN_MODEL, which is always MPI_WIN_UNIFIED.
    pub model: i32,
}

impl WindowAttributes {
    /// Makes the values of a new window's predefined attributes. Constants get the values of the program's
    /// ABI.
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
    /// Returns the attribute for a predefined keyval: for MPI_WIN_BASE the base address itself, otherwise the
    /// address of the value (MPI 5.0, section 12.2.6).
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
    /// Returns the window with the handle `win`, and the state that all windows share.
    #[inline(always)]
    pub(crate) fn window(&mut self, win: Handle) -> Result<(&mut Window, &mut Rma)> {
        Ok((&mut self.windows.get_mut(win)?.window, &mut self.rma))
    }
}

/// How many times a wait looks at its window before it makes progress. So many looks take some microseconds.
const LOOKS: u32 = 1000;

impl Guard {
    /// Waits until the member `rank` of a window has answered all requests of this process. If `rank` is
    /// None, waits for every member. Returns at once if all members are on one host.
    #[inline(always)]
    pub(crate) fn wait_for_answers(&mut self, win: Handle, rank: Option<i32>) -> Result<()> {
        if !self.job().window(win)?.0.spans_hosts() {
            return Ok(());
        }
        self.wait_window(win, |window, _| Ok(window.is_quiet(rank)))
    }

    /// Waits until this process's operations on the member `rank` of a window no longer need this process's
    /// memory. If `rank` is None, waits for the operations on every member.
    #[inline(always)]
    pub(crate) fn wait_for_local_ends(&mut self, win: Handle, rank: Option<i32>) -> Result<()> {
        if !self.job().window(win)?.0.spans_hosts() {
            return Ok(());
        }
        self.wait_window(win, |window, _| Ok(window.is_done_here(rank)))
    }

    /// Waits until `ready` returns true for the window `win`, or an error. Makes progress meanwhile.
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
