//! One connection of a pool: made, used, made again.

use std::cell::{Cell, RefCell};
use std::iter;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{sleep, sleep_until, timeout, timeout_at};
use wire::data::CallFault;

use super::session::{CallProgress, PreparedStatements, ServerSession, SessionFault};
use super::{PAUSE_MAX, PAUSE_MIN, Pool, PreparedCatalog, prepare};
use crate::answer::AnswerWriter;
use crate::catalog::CatalogEntry;
use crate::job::Job;
use crate::queue::{Lane, Work};

/// LIMIT: how long a server may take to say what has become of a call that was stopped.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// LIMIT: calls of one service that a server gets at once on a connection. With fewer, processes that share a processor
/// are woken for each answer alone.
const TOGETHER_MAX: usize = 32;
/// LIMIT: bytes of their parameters: a server that answers before it has read all of them must not be waited for.
const TOGETHER_BYTES_MAX: usize = 16 << 10;
/// LIMIT: how long they usually take in all.
const TOGETHER_TIME_MAX: Duration = Duration::from_millis(10);

/// LIMIT: how often the statements of one call are prepared anew.
const RENEWALS_MAX: usize = 2;

/// See the file's head.
pub(super) struct PoolMember<S: ServerSession> {
    pool: Rc<Pool>,
    session: Option<S>,
    /// The statements that the server has prepared for it.
    prepared: Option<PreparedCatalog<S>>,
    /// A call that waits for a connection, or for its statements to be prepared.
    next: Option<Work>,
}

/// The outcome of a call, and its meaning for the call if the connection is broken.
struct CallOutcome<'j> {
    outcome: Result<AnswerWriter<'j>, SessionFault>,
    is_stopped: bool,
    broken: CallFault,
}

/// Why a connection is not used any longer.
enum SessionEnd {
    /// There will be no more calls.
    Closed,
    /// It is lost, or may be.
    Lost,
}

impl<S: ServerSession> PoolMember<S> {
    pub(super) fn new(pool: Rc<Pool>, first: Option<(S, PreparedCatalog<S>)>) -> Self {
        let (session, prepared) = first.unzip();
        Self { pool, session, prepared, next: None }
    }

    /// The whole life of the connection.
    pub(super) async fn serve(mut self) {
        let mut pause = PAUSE_MIN;
        while !self.pool.queue.is_closed() || self.next.is_some() {
            let session = match self.session.take() {
                Some(session) => Ok(session),
                None => self.log_in().await,
            };
            match session {
                Ok(session) => {
                    pause = PAUSE_MIN;
                    self.pool.up.set(self.pool.up.get() + 1);
                    let ended = self.work(session).await;
                    self.pool.up.set(self.pool.up.get() - 1);
                    self.prepared = None;
                    if matches!(ended, SessionEnd::Closed) {
                        return;
                    }
                }
                Err(reason) => {
                    eprintln!("error: {reason}");
                    self.wait(pause, &reason).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    /// Logs in anew. If no other connection is there, calls wait for it meanwhile, each for as long as it may.
    async fn log_in(&mut self) -> Result<S, String> {
        let pool = self.pool.clone();
        let login = pool.way.log_in();
        tokio::pin!(login);
        loop {
            let deadline = self.next.as_ref().map(|work| work.job.deadline);
            let late = async { sleep_until(deadline.unwrap_or_else(Instant::now).into()).await };
            tokio::select! {
                biased;
                session = &mut login => return session,
                () = late, if deadline.is_some() => {
                    let work = self.next.take();
                    work.iter().for_each(|work| work.job.fail(CallFault::Late, "the server does not answer"));
                }
                work = pool.queue.turn(Lane::Read), if deadline.is_none() && pool.up.get() == 0 => match work {
                    Some(work) => self.next = Some(work),
                    None => return Err("nobody wants the server any more".into()),
                },
            }
        }
    }

    /// Lets the server alone for a while. If no other connection is there, calls fail meanwhile: nobody waits for what
    /// may not come.
    async fn wait(&mut self, pause: Duration, reason: &str) {
        let over = sleep(pause);
        tokio::pin!(over);
        loop {
            if self.pool.up.get() > 0 {
                return over.await;
            }
            if let Some(work) = self.next.take() {
                work.job.fail(CallFault::Database, reason);
            }
            tokio::select! {
                () = &mut over => return,
                work = self.pool.queue.turn(Lane::Read) => match work {
                    Some(work) => self.next = Some(work),
                    None => return,
                },
            }
        }
    }

    /// Carries out what comes, for as long as the connection is there.
    async fn work(&mut self, mut session: S) -> SessionEnd {
        loop {
            let work = match self.next.take() {
                Some(work) => work,
                None => tokio::select! {
                    biased;
                    () = session.closed() => return SessionEnd::Lost,
                    work = self.pool.queue.turn(Lane::Read) => match work {
                        Some(work) => work,
                        None => return SessionEnd::Closed,
                    },
                },
            };
            if !self.is_prepared(&work.job) {
                match self.prepare(&mut session, &work.job).await {
                    Ok(()) => {}
                    Err(reason) => {
                        eprintln!("error: {reason}");
                        work.job.fail(CallFault::Database, reason);
                        return SessionEnd::Lost;
                    }
                }
            }
            let along = self.along(&work);
            let jobs: Vec<&Job> = iter::once(&work.job).chain(&along).filter(|job| job.begins()).collect();
            let is_usable = match jobs[..] {
                [] => true,
                [job] => self.carry_out(&mut session, job).await,
                _ => self.read_together(&mut session, &jobs).await,
            };
            if !is_usable {
                return SessionEnd::Lost;
            }
        }
    }

    fn is_prepared(&self, job: &Job) -> bool {
        self.prepared.as_ref().is_some_and(|(catalog, _)| Arc::ptr_eq(catalog, &job.catalog))
    }

    async fn prepare(&mut self, session: &mut S, job: &Job) -> Result<(), String> {
        let prepared = prepare(session, &job.catalog.file).await.map_err(|refusal| refusal.to_string())?;
        self.prepared = Some((job.catalog.clone(), prepared));
        Ok(())
    }

    /// Carries one call out; whether the connection can be used again.
    ///
    /// After a change of tables, types or rights, or behind a pooler, the server may not know a statement as it was
    /// prepared. It has carried nothing of the call out then, so the statements are prepared anew, and the call is made
    /// again.
    async fn carry_out(&mut self, session: &mut S, job: &Job) -> bool {
        let Some((catalog, mut prepared)) = self.prepared.take() else { return false };
        let mut renewals = 0;
        let is_usable = loop {
            let CallOutcome { outcome, is_stopped, broken } = self.try_once(session, &prepared, job).await;
            let outcome = match outcome {
                Err(SessionFault::Outdated(fault, reason)) if renewals < RENEWALS_MAX && !is_stopped => {
                    if job.can_begin_again() {
                        renewals += 1;
                        let renewal = session.renew(&mut prepared, job, renewals > 1);
                        match timeout_at(job.deadline.into(), renewal).await {
                            Ok(Ok(())) => continue,
                            Ok(Err(fault)) => Err(fault),
                            // It is in the middle of an answer.
                            Err(_) => Err(SessionFault::Broken("the server does not answer in time".into())),
                        }
                    } else {
                        Err(SessionFault::Refused(fault, reason))
                    }
                }
                outcome => outcome,
            };
            // A cancellation may come late, and must not stop the next call.
            break settle(job, outcome, broken) && !is_stopped;
        };
        self.prepared = Some((catalog, prepared));
        is_usable
    }

    async fn try_once<'j>(
        &self,
        session: &mut S,
        prepared: &PreparedStatements<S::Statement>,
        job: &'j Job,
    ) -> CallOutcome<'j> {
        let (progress, canceller, begun) = (CallProgress::default(), session.canceller(), Instant::now());
        let running = session.carry_out(prepared, job, &progress);
        tokio::pin!(running);
        let in_time = tokio::select! {
            biased;
            outcome = &mut running => Some(outcome),
            () = sleep_until(job.deadline.into()) => None,
            () = job.cancelled.cancelled() => None,
        };
        let is_stopped = in_time.is_none();
        let outcome = match in_time {
            Some(outcome) => outcome,
            None => {
                let stopped = match canceller {
                    Some(canceller) => {
                        self.stop(canceller);
                        timeout(STOP_TIMEOUT, running).await.ok()
                    }
                    // There is nothing to wait for.
                    None => None,
                };
                stopped.unwrap_or_else(|| Err(SessionFault::Broken("the server does not answer".into())))
            }
        };
        if let (CatalogEntry::Statement(number), false) = (job.call, is_stopped) {
            job.catalog.took(number, begun.elapsed());
        }
        let broken = match () {
            () if progress.is_unknown() => CallFault::Lost,
            () if is_stopped => CallFault::Late,
            () => CallFault::Database,
        };
        CallOutcome { outcome, is_stopped, broken }
    }

    /// Calls that wait and can be sent together with one: those that only read and usually take no time, so that
    /// nothing is lost by them if the connection is, and nobody waits long for those before.
    fn along(&self, work: &Work) -> Vec<Job> {
        let catalog = &work.job.catalog;
        let (mut count, mut bytes, mut time) = (0, 0, Duration::ZERO);
        let mut fits = |job: &Job| {
            let CatalogEntry::Statement(number) = job.call else { return false };
            let Some(usual) = catalog.usual(number) else { return false };
            count += 1;
            bytes += job.length();
            time += usual;
            let is_short = count <= TOGETHER_MAX && bytes <= TOGETHER_BYTES_MAX && time <= TOGETHER_TIME_MAX;
            is_short && catalog.reads[number] && Arc::ptr_eq(catalog, &job.catalog)
        };
        if fits(&work.job) { work.take_along(fits) } else { Vec::new() }
    }

    /// Carries out calls that only read, one after the other; whether the connection can be used again.
    async fn read_together(&mut self, session: &mut S, jobs: &[&Job]) -> bool {
        let Some((_, prepared)) = &self.prepared else { return false };
        let (canceller, begun) = (session.canceller(), Instant::now());
        let (settled, broken, mut outdated) = (Cell::new(0), RefCell::new(None), Vec::new());
        let mut one = |outcome: Result<AnswerWriter<'_>, SessionFault>| match outcome {
            Err(SessionFault::Broken(reason)) => *broken.borrow_mut() = Some(reason),
            Err(SessionFault::Outdated(..)) if jobs[settled.get()].can_begin_again() => {
                outdated.push(jobs[settled.get()]);
                settled.set(settled.get() + 1);
            }
            outcome => {
                settle(jobs[settled.get()], outcome, CallFault::Database);
                settled.set(settled.get() + 1);
            }
        };
        let in_time = {
            let mut running = pin!(session.read_together(prepared, jobs, &mut one));
            let deadline = jobs.iter().map(|job| job.deadline).min().unwrap_or(begun);
            let in_time = timeout_at(deadline.into(), &mut running).await.is_ok();
            if let (false, Some(canceller)) = (in_time, canceller) {
                self.stop(canceller);
                let _ = timeout(STOP_TIMEOUT, running).await;
            }
            in_time
        };
        let rest = &jobs[settled.get()..];
        if rest.is_empty() {
            let each = begun.elapsed() / u32::try_from(jobs.len()).unwrap_or(u32::MAX);
            jobs.iter().flat_map(|job| job.steps()).for_each(|step| jobs[0].catalog.took(step.number, each));
            return self.again(session, &outdated, in_time).await;
        }
        let fault = if in_time { CallFault::Database } else { CallFault::Late };
        let reason = broken.take().unwrap_or_else(|| "the server does not answer".to_owned());
        eprintln!("error: {reason}");
        rest.iter().chain(&outdated).for_each(|job| job.fail(fault, &reason));
        false
    }

    /// Carries calls out that the server did not know together with others; whether the connection can be used again.
    async fn again(&mut self, session: &mut S, jobs: &[&Job], is_usable: bool) -> bool {
        let mut is_usable = is_usable;
        for job in jobs {
            match is_usable {
                true => is_usable = self.carry_out(session, job).await,
                false => job.fail(CallFault::Database, "the connection to the server was given up"),
            }
        }
        is_usable
    }

    /// Has the server stop the call under way.
    fn stop(&self, canceller: S::Canceller) {
        let pool = self.pool.clone();
        tokio::task::spawn_local(async move {
            let stopping = async {
                if let Ok(stream) = pool.way.connect().await {
                    S::cancel(canceller, stream, (*pool.way.login()).clone()).await;
                }
            };
            let _ = timeout(STOP_TIMEOUT, stopping).await;
        });
    }
}

/// Tells a service what has become of its call, if the connection is broken that is `broken`; whether it can be used
/// again.
fn settle(job: &Job, outcome: Result<AnswerWriter<'_>, SessionFault>, broken: CallFault) -> bool {
    let (fault, reason, is_broken) = match outcome {
        Ok(answer) => {
            answer.end();
            return true;
        }
        Err(SessionFault::Said) => return true,
        Err(SessionFault::Refused(fault, reason) | SessionFault::Outdated(fault, reason)) => {
            (fault, reason, false)
        }
        Err(SessionFault::Broken(reason)) => (broken, reason, true),
    };
    if is_broken || matches!(fault, CallFault::Database | CallFault::Lost) {
        eprintln!("error: {reason}");
    }
    job.fail(fault, reason);
    !is_broken
}
