//! Pauses of a thread that computes for long, so that others get its processor.
//!
//! Runs in: a data proxy's threads that work on SQLite. Sees no bytes. Never: runs anything in the signal handler but a
//! sleep and the calls that measure and repeat it.
//!
//! A timer's signal comes also where the thread is within a function of somebody else's that looks at no clock. What
//! the thread has locked stays locked in a pause, as when the kernel takes the processor away.

use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI64, Ordering, compiler_fence};
use std::time::Duration;

/// The signal of the timers, which nothing else uses.
const SIGNAL: libc::c_int = libc::SIGVTALRM;
/// LIMIT: with as many processors or fewer, threads that share have one of them in turns. While each sleeps in its own
/// turn, the process as a whole would never let go of its processor.
const FEW: u32 = 2;
/// LIMIT: how often a thread waits, half a turn each time, for those that have a turn.
const WAITS_MAX: usize = 8;
/// Until when a thread has a turn of those that share, by the monotonic clock.
static SHARED_UNTIL: AtomicI64 = AtomicI64::new(0);

/// LIMIT: nanoseconds between two signals to a thread that sleeps.
const STEP_MAX: i64 = 10_000_000;

/// The kernel's number of a timer. Not the C library's, which may be a pointer.
type Number = libc::c_int;

thread_local! {
    // Without destructors and made by the compiler: the handler may look at any time.
    static TIMER: Cell<Option<Number>> = const { Cell::new(None) };
    /// Processor time between two pauses, in nanoseconds; 0 while the thread works on nothing.
    static TURN: Cell<i64> = const { Cell::new(0) };
    /// What the thread had used at its last pause; 0 if there was none since its work has begun.
    static SINCE: Cell<i64> = const { Cell::new(0) };
    /// What it had used at the last signal, and how many nanoseconds after that the next one is.
    static SEEN: Cell<i64> = const { Cell::new(0) };
    static STEP: Cell<i64> = const { Cell::new(0) };
    /// Whether its work is done in turns with other threads that share, and until when this thread has one.
    static SHARES: Cell<bool> = const { Cell::new(false) };
    static OWN_UNTIL: Cell<i64> = const { Cell::new(0) };
    /// Whether the work under way has pauses.
    static HAS_PAUSES: Cell<bool> = const { Cell::new(false) };
}

/// The timer of the thread that has made this.
#[derive(Debug)]
pub struct Timer {
    number: Number,
    /// It is of one thread.
    here: PhantomData<*const ()>,
}

/// Who may have another thread pause.
#[derive(Clone, Copy, Debug)]
pub struct Remote(Number);

impl Timer {
    /// Makes one for this thread, which has none. Those that share have one processor where there are few.
    ///
    /// # Errors
    /// There is none left.
    pub fn new(shares: bool) -> io::Result<Self> {
        handle()?;
        SHARES.set(shares && rustix::thread::sched_getaffinity(None)?.count() <= FEW);
        let number = timer()?;
        TIMER.set(Some(number));
        Ok(Self { number, here: PhantomData })
    }

    /// For another thread.
    pub fn remote(&self) -> Remote {
        Remote(self.number)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        end();
        TIMER.set(None);
        // SAFETY: the call takes a number, and touches no memory.
        unsafe { libc::syscall(libc::SYS_timer_delete, self.number) };
    }
}

impl Remote {
    /// The work that the other thread has under way pauses now, and after each turn. If it has none, or has ended,
    /// nothing happens.
    pub fn pause(self) {
        set(self.0, 1);
    }
}

/// A piece of work begins on this thread. If it has pauses, which another thread may decide later, there is one after
/// each `turn` of processor time.
pub fn begin(turn: Duration, has_pauses: bool) {
    let turn = turn.as_nanos() as i64;
    SINCE.set(if has_pauses { used() } else { 0 });
    TURN.set(turn);
    compiler_fence(Ordering::SeqCst);
    if has_pauses {
        HAS_PAUSES.set(true);
        arm(turn);
    }
}

/// It has ended, or goes on with what is not to be interrupted.
pub fn end() {
    TURN.set(0);
    compiler_fence(Ordering::SeqCst);
    if HAS_PAUSES.replace(false) {
        end_turn();
        TIMER.get().into_iter().for_each(|timer| set(timer, 0));
    }
}

/// The handler. What it calls is safe at any moment (signal-safety(7)): system calls alone.
extern "C" fn on_signal(_signal: libc::c_int) {
    // SAFETY: the location is this thread's own.
    let errno = unsafe { *libc::__errno_location() };
    let turn = TURN.get();
    if turn > 0 {
        HAS_PAUSES.set(true);
        arm(look(turn));
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Pauses if the turn is over; in how many nanoseconds it is to be looked again.
fn look(turn: i64) -> i64 {
    let (since, now) = (SINCE.get(), used());
    let before = SEEN.replace(now);
    if since == 0 || now - since >= turn {
        end_turn();
        sleep(1);
        if SHARES.get() {
            wait_for_turn(turn);
        }
        let now = used();
        SINCE.set(now);
        SEEN.set(now);
        return turn;
    }
    // It sleeps by itself, or has had to wait for a processor.
    let is_idle = now - before < turn / 8;
    if is_idle { (2 * STEP.get()).min(STEP_MAX) } else { turn - (now - since) }
}

/// Waits until no other thread that shares a processor has its turn, for some turns at most: who has it may be asleep.
fn wait_for_turn(turn: i64) {
    for _ in 0..WAITS_MAX {
        let (now, theirs) = (clock(libc::CLOCK_MONOTONIC), SHARED_UNTIL.load(Ordering::Relaxed));
        let own = now + 2 * turn;
        let is_free = theirs <= now;
        if is_free && SHARED_UNTIL.compare_exchange(theirs, own, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            return OWN_UNTIL.set(own);
        }
        sleep(turn / 2);
    }
}

/// Lets another thread have its turn.
fn end_turn() {
    let own = OWN_UNTIL.replace(0);
    if own > 0 {
        // If it was over already, the turn is another's.
        let _ = SHARED_UNTIL.compare_exchange(own, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// The shortest sleep of the kernel's takes about 55 µs.
fn sleep(nanoseconds: i64) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
    // SAFETY: the time is read, and nothing is written.
    unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &raw const time, null_mut()) };
}

/// Processor time of this thread, in nanoseconds.
fn used() -> i64 {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is written, which is valid before and after.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Has the signal come to this thread once, after so many nanoseconds.
fn arm(nanoseconds: i64) {
    STEP.set(nanoseconds);
    TIMER.get().into_iter().for_each(|timer| set(timer, nanoseconds.max(1)));
}

/// Has the signal of a timer come after so many nanoseconds, or not at all.
fn set(timer: Number, nanoseconds: i64) {
    let time = libc::itimerspec {
        it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: libc::timespec { tv_sec: 0, tv_nsec: nanoseconds.min(999_999_999) },
    };
    let none = null_mut::<libc::itimerspec>();
    // SAFETY: the structure is read, and nothing is written. A timer that is gone is refused.
    unsafe { libc::syscall(libc::SYS_timer_settime, timer, 0, &raw const time, none) };
}

/// Has the signal handled. What it interrupts is taken up again.
fn handle() -> io::Result<()> {
    let handler: extern "C" fn(libc::c_int) = on_signal;
    // SAFETY: a sigaction of noughts is valid; the handler is safe at any moment.
    let failed = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(SIGNAL, &raw const action, null_mut())
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A timer whose signal comes to this thread.
fn timer() -> io::Result<Number> {
    let mut number: Number = 0;
    // SAFETY: a sigevent of noughts is valid, and is read; the number is written.
    let failed = unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = SIGNAL;
        event.sigev_notify_thread_id = libc::gettid();
        libc::syscall(libc::SYS_timer_create, libc::CLOCK_MONOTONIC, &raw mut event, &raw mut number)
    };
    if failed == 0 { Ok(number) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;
    use std::time::Instant;

    use super::*;

    const TURN_TIME: Duration = Duration::from_micros(300);
    const LONG: Duration = Duration::from_millis(60);

    /// How often this thread has slept.
    fn sleeps() -> i64 {
        let mut usage = MaybeUninit::<libc::rusage>::uninit();
        // SAFETY: the structure is written, and read only then.
        unsafe {
            assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()), 0);
            usage.assume_init().ru_nvcsw
        }
    }

    /// Computes until this thread has used so much more of a processor, and says how often it slept.
    fn compute(time: Duration) -> i64 {
        let (slept, until) = (sleeps(), used() + time.as_nanos() as i64);
        while used() < until {
            std::hint::spin_loop();
        }
        sleeps() - slept
    }

    #[test]
    fn a_thread_that_computes_pauses_while_it_works() {
        let _timer = Timer::new(false).unwrap();
        for _ in 0..2 {
            assert!(compute(LONG) < 20);
            begin(TURN_TIME, true);
            assert!(compute(LONG) > 60);
            end();
        }
        begin(TURN_TIME, false);
        assert!(compute(LONG) < 20);
        end();
    }

    #[test]
    fn another_thread_decides_that_it_pauses() {
        let timer = Timer::new(false).unwrap();
        let remote = timer.remote();
        remote.pause();
        assert!(compute(LONG) < 20);
        begin(TURN_TIME, false);
        std::thread::spawn(move || remote.pause()).join().unwrap();
        assert!(compute(LONG) > 60);
        end();
        assert!(compute(LONG) < 20);
        drop(timer);
        remote.pause();
    }

    #[test]
    fn threads_that_share_have_turns_and_wait_for_none_that_sleeps() {
        let (began, sum) = (Instant::now(), Duration::from_millis(40));
        let all: Vec<_> = (0..3)
            .map(|_| {
                std::thread::spawn(move || {
                    let _timer = Timer::new(false).unwrap();
                    SHARES.set(true);
                    begin(TURN_TIME, true);
                    let slept = compute(sum);
                    assert!(slept > 40, "{slept}");
                    // It has its turn, and ends without a word.
                    std::thread::sleep(Duration::from_millis(1));
                })
            })
            .collect();
        all.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(began.elapsed() >= 2 * sum);
    }

    #[test]
    fn who_sleeps_is_woken_seldom() {
        let _timer = Timer::new(false).unwrap();
        begin(TURN_TIME, true);
        compute(LONG);
        // With a signal in each turn, it would have to fall asleep 333 times in each of these. A handler that others
        // keep from its processor's cache looks like work, in some of them.
        let slept = (0..10).map(|_| {
            let before = sleeps();
            std::thread::sleep(Duration::from_millis(100));
            sleeps() - before
        });
        let least = slept.min().unwrap();
        assert!(least < 160, "{least}");
        assert!(compute(LONG) > 60);
        end();
    }

    #[test]
    fn what_sleeps_sleeps_on_and_errno_stays() {
        let _timer = Timer::new(false).unwrap();
        begin(TURN_TIME, true);
        let (began, time) = (Instant::now(), Duration::from_millis(20));
        std::thread::sleep(time);
        assert!(began.elapsed() >= time);
        // SAFETY: the location is this thread's own.
        unsafe { *libc::__errno_location() = libc::EXDEV };
        let until = used() + 20_000_000;
        while used() < until {}
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EXDEV));
        end();
    }
}
