//! How a process that must not wait opens what lies on a file system that somebody else answers for: another process
//! has opened it.
//!
//! Runs in: as the module above. Input: none. Must never: ask such a file system in a process that has said that it
//! does not wait.
//!
//! SECURITY: the launcher looks after all processes in one loop. A tenant whose FUSE file system does not answer, or
//! a server of NFS that is gone, would stop it at any call that asks for a name there; `O_NONBLOCK` is not looked at
//! by either.

use std::cell::RefCell;
use std::fmt;
use std::path::Path;
use std::rc::Rc;

use super::Class;
use super::fault::PathFault;
use super::found::Found;

/// What another process has opened.
pub trait Beside: fmt::Debug {
    /// What the path of a key leads to, if that was opened.
    ///
    /// # Errors
    /// [`PathFault::Remote`] if nobody has opened it yet; or what was wrong with it.
    fn found(&self, class: Class, path: &Path) -> Result<Found, PathFault>;
}

thread_local! {
    static BESIDE: RefCell<Option<Rc<dyn Beside>>> = const { RefCell::new(None) };
}

/// From here on, this thread waits for no file system but the kernel's own: what lies on others is what `beside` has.
pub fn open_beside(beside: Rc<dyn Beside>) {
    BESIDE.set(Some(beside));
}

/// From here on, this thread opens everything itself, and waits for it: it is that of a process beside the one that
/// must not.
pub fn open_here() {
    super::mounts::forget();
    BESIDE.set(None);
}

/// Whether this thread waits for whoever answers for a file system.
pub(crate) fn may_wait() -> bool {
    BESIDE.with_borrow(Option::is_none)
}

/// What another process opens for this one, if this one does not wait.
pub(super) fn get() -> Option<Rc<dyn Beside>> {
    BESIDE.with_borrow(Clone::clone)
}
