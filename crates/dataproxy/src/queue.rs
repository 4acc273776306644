//! Calls that wait for a thread or a connection: in turns among the services, so that none can keep the others waiting.
//!
//! Sees no input. Never: gives one service all threads or connections, where there are several, or a turn to a call
//! whose service has too much to read.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::job::Job;

/// LIMIT: how often it is looked whether calls are over, while there are any.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Which threads, or connections, a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// The one that writes.
    Write = 0,
    /// Those that only read, or all that there are where none is for writing.
    Read = 1,
}

/// A call on a thread or a connection, which ends when this is dropped.
#[derive(Debug)]
pub struct Work {
    /// The call.
    pub job: Job,
    service: usize,
    lane: Lane,
    queue: Arc<Queue>,
}

impl Work {
    /// Takes more calls of the same service that wait, in their order, as long as `fits` says so: no more than are left
    /// when all connections that the service may have now take the same.
    pub(crate) fn take_along(&self, mut fits: impl FnMut(&Job) -> bool) -> Vec<Job> {
        self.queue.state().lanes[self.lane as usize].take_along(self.service, &mut fits)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.queue.ended(self.lane, self.service);
    }
}

#[derive(Debug, Default)]
struct ServiceJobs {
    jobs: VecDeque<Job>,
    under_way: usize,
}

impl ServiceJobs {
    /// The first job that can have its turn. Those before are of another process of the service, which has too much to
    /// read.
    fn ready(&self) -> Option<usize> {
        self.jobs.iter().position(Job::is_ready)
    }
}

#[derive(Debug)]
struct LaneQueue {
    /// By the number of the service.
    services: HashMap<usize, ServiceJobs>,
    /// Those that have jobs, the next one first.
    order: VecDeque<usize>,
    /// How many jobs of one service may be under way at once.
    most: usize,
}

#[derive(Debug)]
struct QueueState {
    lanes: [LaneQueue; 2],
    is_closed: bool,
}

/// All calls that wait.
#[derive(Debug)]
pub struct Queue {
    state: Mutex<QueueState>,
    /// For threads, and for tasks.
    come: [Condvar; 2],
    told: [Notify; 2],
    /// For who sees to it that calls end in time: a thread, or a task.
    kept: Condvar,
    work: Notify,
}

impl Queue {
    /// A queue for one thread that writes, and for so many that read, or connections.
    pub fn new(readers: usize) -> Arc<Self> {
        let lane = |most| LaneQueue { services: HashMap::new(), order: VecDeque::new(), most };
        let lanes = [lane(1), lane(readers.saturating_sub(1).max(1))];
        Arc::new(Self {
            state: Mutex::new(QueueState { lanes, is_closed: false }),
            come: Default::default(),
            told: Default::default(),
            kept: Condvar::new(),
            work: Notify::new(),
        })
    }

    /// Adds a call of a service.
    pub fn add(&self, lane: Lane, service: usize, job: Job) {
        let mut state = self.state();
        let own = &mut state.lanes[lane as usize];
        let waiting = own.services.entry(service).or_default();
        if waiting.jobs.is_empty() {
            own.order.push_back(service);
        }
        waiting.jobs.push_back(job);
        self.tell(lane);
        self.kept.notify_one();
        self.work.notify_one();
    }

    /// Sees to it, as a task, that calls which wait end in time, until no more come.
    pub(crate) async fn keep_time(self: Arc<Self>) {
        loop {
            let work = self.work.notified();
            let (is_idle, is_closed) = {
                let state = self.state();
                (state.lanes.iter().all(|lane| lane.services.is_empty()), state.is_closed)
            };
            match (is_idle, is_closed) {
                (true, true) => return,
                (true, false) => work.await,
                (false, _) => {
                    tokio::time::sleep(LOOK_EVERY).await;
                    self.expire(Instant::now());
                }
            }
        }
    }

    /// Waits until there is a call that waits or is under way; whether there will be any.
    pub(crate) fn wait_for_work(&self) -> bool {
        let is_idle = |state: &mut QueueState| {
            state.lanes.iter().all(|lane| lane.services.is_empty()) && !state.is_closed
        };
        let state = self.kept.wait_while(self.state(), is_idle).unwrap_or_else(PoisonError::into_inner);
        !state.is_closed || state.lanes.iter().any(|lane| !lane.services.is_empty())
    }

    /// Ends calls whose time is over before their turn has come.
    pub(crate) fn expire(&self, now: Instant) {
        let late: Vec<Job> = self.state().lanes.iter_mut().flat_map(|lane| lane.take_late(now)).collect();
        late.iter().for_each(|job| job.replies.give_up(job.id));
    }

    fn tell(&self, lane: Lane) {
        self.come[lane as usize].notify_one();
        self.told[lane as usize].notify_one();
    }

    /// The next call for a task; `None` if there will be none.
    pub async fn turn(self: &Arc<Self>, lane: Lane) -> Option<Work> {
        loop {
            let told = self.told[lane as usize].notified();
            {
                let mut state = self.state();
                if let Some((service, job)) = state.lanes[lane as usize].take() {
                    return Some(Work { job, service, lane, queue: self.clone() });
                }
                if state.is_closed {
                    return None;
                }
            }
            told.await;
        }
    }

    /// The next call for a thread; `None` if there will be none.
    pub fn next(self: &Arc<Self>, lane: Lane) -> Option<Work> {
        let mut state = self.state();
        loop {
            if let Some((service, job)) = state.lanes[lane as usize].take() {
                return Some(Work { job, service, lane, queue: self.clone() });
            }
            if state.is_closed {
                return None;
            }
            state = self.come[lane as usize].wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The same, for a while only.
    pub fn next_within(self: &Arc<Self>, lane: Lane, time: Duration) -> Option<Work> {
        let state = self.state();
        let nothing = |state: &mut QueueState| !state.lanes[lane as usize].has_turn() && !state.is_closed;
        let (mut state, _) = self.come[lane as usize]
            .wait_timeout_while(state, time, nothing)
            .unwrap_or_else(PoisonError::into_inner);
        let (service, job) = state.lanes[lane as usize].take()?;
        Some(Work { job, service, lane, queue: self.clone() })
    }

    /// A service has read, or does not want an answer any more: calls that have waited for that may have their turn.
    pub fn look_again(&self) {
        // Nobody is between a look and the wait after it.
        let _state = self.state();
        self.come.iter().for_each(Condvar::notify_all);
        self.told.iter().for_each(Notify::notify_waiters);
    }

    /// Whether threads are to end.
    pub fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    /// No more calls come: threads end when they have done what there is.
    pub fn close(&self) {
        self.state().is_closed = true;
        self.kept.notify_all();
        self.work.notify_one();
        self.come.iter().for_each(Condvar::notify_all);
        self.told.iter().for_each(Notify::notify_waiters);
    }

    fn ended(&self, lane: Lane, service: usize) {
        let mut state = self.state();
        let own = &mut state.lanes[lane as usize];
        if let Some(waiting) = own.services.get_mut(&service) {
            waiting.under_way -= 1;
            if !waiting.jobs.is_empty() {
                own.go_last(service);
            } else if waiting.under_way == 0 {
                own.services.remove(&service);
            }
        }
        if state.is_closed {
            self.kept.notify_all();
        }
        self.tell(lane);
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LaneQueue {
    /// The next job, of a service that has not as many under way as it may have.
    fn take(&mut self) -> Option<(usize, Job)> {
        let at = self.position()?;
        let service = self.order.remove(at)?;
        let waiting = self.services.get_mut(&service)?;
        let job = waiting.jobs.remove(waiting.ready()?)?;
        waiting.under_way += 1;
        if !waiting.jobs.is_empty() {
            self.order.push_back(service);
        }
        Some((service, job))
    }

    /// Has a service that has had a turn wait behind those that came meanwhile: they would wait for two of its calls.
    fn go_last(&mut self, service: usize) {
        self.order.retain(|other| *other != service);
        self.order.push_back(service);
    }

    /// Those whose time is over.
    fn take_late(&mut self, now: Instant) -> Vec<Job> {
        let mut late = Vec::new();
        for waiting in self.services.values_mut() {
            if waiting.jobs.iter().any(|job| job.deadline <= now) {
                let (over, left) = waiting.jobs.drain(..).partition(|job| job.deadline <= now);
                waiting.jobs = left;
                late.extend::<VecDeque<Job>>(over);
            }
        }
        if !late.is_empty() {
            self.order.retain(|service| self.services.get(service).is_some_and(|own| !own.jobs.is_empty()));
            self.services.retain(|_, own| own.under_way > 0 || !own.jobs.is_empty());
        }
        late
    }

    /// See [`Work::take_along`].
    fn take_along(&mut self, service: usize, fits: &mut dyn FnMut(&Job) -> bool) -> Vec<Job> {
        let Some(waiting) = self.services.get_mut(&service) else { return Vec::new() };
        // Connections that others wait for are not for it alone.
        let connections = (self.most / self.order.len().max(1)).max(1);
        let share = waiting.jobs.len() / connections;
        let count = waiting.jobs.iter().take(share).take_while(|job| job.is_ready() && fits(job)).count();
        let jobs = waiting.jobs.drain(..count).collect();
        if count > 0 && waiting.jobs.is_empty() {
            self.order.retain(|other| *other != service);
        }
        jobs
    }

    fn has_turn(&self) -> bool {
        self.position().is_some()
    }

    fn position(&self) -> Option<usize> {
        self.order.iter().position(|service| {
            let waiting = &self.services[service];
            waiting.under_way < self.most && waiting.ready().is_some()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Catalog, CatalogEntry};
    use crate::job::{AnswerPart, Budget, Replies};
    use tokio::sync::mpsc::unbounded_channel;
    use tokio_util::sync::CancellationToken;
    use wire::data::{CallFault, UNREAD_MAX};

    fn job(id: u32) -> Job {
        Job {
            id,
            call: CatalogEntry::Statement(0),
            catalog: Arc::new(Catalog::new(Default::default(), Vec::new(), true)),
            values: Vec::new(),
            deadline: Instant::now(),
            cancelled: CancellationToken::new(),
            replies: Replies::new(unbounded_channel().0, Arc::default(), Arc::default()),
        }
    }

    fn next(queue: &Arc<Queue>) -> Option<Work> {
        queue.next_within(Lane::Read, Duration::ZERO)
    }

    #[test]
    fn services_take_turns() {
        let queue = Queue::new(1);
        (0..3).for_each(|id| queue.add(Lane::Read, 1, job(id)));
        queue.add(Lane::Read, 2, job(7));
        let order = std::iter::from_fn(|| next(&queue).map(|work| work.job.id));
        assert_eq!(order.collect::<Vec<_>>(), [0, 7, 1, 2]);
        assert!(queue.state().lanes[1].services.is_empty());
    }

    #[test]
    fn one_service_leaves_a_thread_to_the_others() {
        let queue = Queue::new(3);
        (0..5).for_each(|id| queue.add(Lane::Read, 1, job(id)));
        let under_way = [next(&queue), next(&queue)];
        assert!(under_way.iter().all(Option::is_some) && next(&queue).is_none());
        queue.add(Lane::Read, 2, job(7));
        let other = next(&queue).unwrap();
        assert_eq!(other.job.id, 7);
        drop(under_way);
        assert_eq!(next(&queue).unwrap().job.id, 2);
    }

    #[test]
    fn a_call_whose_service_has_too_much_to_read_waits_for_its_turn() {
        let queue = Queue::new(2);
        let budget = Arc::new(Budget::default());
        budget.take(UNREAD_MAX + 1);
        let stuck = |id| Job {
            replies: Replies::new(unbounded_channel().0, budget.clone(), Arc::default()),
            ..job(id)
        };
        queue.add(Lane::Read, 1, stuck(1));
        assert!(next(&queue).is_none());
        // Another process of the service, and another service.
        queue.add(Lane::Read, 1, job(2));
        queue.add(Lane::Read, 2, job(3));
        assert_eq!([next(&queue).unwrap().job.id, next(&queue).unwrap().job.id], [2, 3]);
        assert!(next(&queue).is_none());
        let waiting = std::thread::spawn({
            let queue = queue.clone();
            move || queue.next(Lane::Read).map(|work| work.job.id)
        });
        assert!(budget.give_back(1));
        queue.look_again();
        assert_eq!(waiting.join().unwrap(), Some(1));
        // One that is not wanted any more is taken, to be told so.
        budget.take(1);
        let cancelled = CancellationToken::new();
        queue.add(Lane::Read, 1, Job { cancelled: cancelled.clone(), ..stuck(4) });
        assert!(next(&queue).is_none());
        cancelled.cancel();
        assert_eq!(next(&queue).unwrap().job.id, 4);
        assert!(queue.state().lanes[1].services.is_empty());
    }

    #[test]
    fn calls_come_along_in_their_order_and_leave_some_to_the_other_connections() {
        let queue = Queue::new(3);
        (0..7).for_each(|id| queue.add(Lane::Read, 1, job(id)));
        let along = |work: &Work, last: u32| {
            work.take_along(|job| job.id <= last).iter().map(|job| job.id).collect::<Vec<_>>()
        };
        let first = next(&queue).unwrap();
        assert_eq!(along(&first, 9), [1, 2, 3]);
        let second = next(&queue).unwrap();
        assert_eq!((second.job.id, along(&second, 4)), (4, vec![]));
        assert_eq!(along(&second, 5), [5]);
        queue.add(Lane::Read, 2, job(7));
        assert_eq!(next(&queue).unwrap().job.id, 7);
        drop((first, second));
        assert_eq!(next(&queue).unwrap().job.id, 6);
        assert!(queue.state().lanes[1].services.is_empty());
    }

    #[test]
    fn a_service_whose_calls_all_came_along_is_in_no_order() {
        let queue = Queue::new(1);
        (0..3).for_each(|id| queue.add(Lane::Read, 1, job(id)));
        let work = next(&queue).unwrap();
        assert_eq!(work.take_along(|_| true).len(), 2);
        drop(work);
        assert!(next(&queue).is_none());
        queue.add(Lane::Read, 1, job(3));
        assert_eq!(next(&queue).unwrap().job.id, 3);
    }

    #[test]
    fn a_call_that_waits_ends_in_its_own_time() {
        let queue = Queue::new(2);
        let (to, mut answers) = unbounded_channel();
        let now = Instant::now();
        queue.add(Lane::Read, 1, job(1));
        let first = next(&queue).unwrap();
        let replies = |to| Replies::new(to, Arc::default(), Arc::default());
        queue.add(Lane::Read, 1, Job { deadline: now, replies: replies(to), ..job(2) });
        queue.add(Lane::Read, 1, Job { deadline: now + Duration::from_secs(9), ..job(3) });
        queue.expire(now + Duration::from_secs(1));
        assert!(matches!(answers.try_recv(), Ok(AnswerPart::Failed(2, CallFault::Busy, _))));
        drop(first);
        assert_eq!(next(&queue).unwrap().job.id, 3);
        assert!(queue.state().lanes[1].services.is_empty() && queue.state().lanes[1].order.is_empty());
    }

    #[test]
    fn who_comes_during_a_call_waits_for_that_one_alone() {
        let queue = Queue::new(2);
        for lane in [Lane::Write, Lane::Read] {
            (1..4).for_each(|id| queue.add(lane, 1, job(id)));
            let first = queue.next(lane).unwrap();
            queue.add(lane, 2, job(4));
            drop(first);
            let order = (0..3).map(|_| queue.next(lane).unwrap().job.id);
            assert_eq!(order.collect::<Vec<_>>(), [4, 2, 3]);
            assert!(queue.state().lanes[lane as usize].services.is_empty());
        }
    }

    #[test]
    fn reading_and_writing_are_apart_and_the_end_comes_last() {
        let queue = Queue::new(2);
        queue.add(Lane::Write, 1, job(1));
        assert!(next(&queue).is_none());
        queue.close();
        assert_eq!(queue.next(Lane::Write).unwrap().job.id, 1);
        assert!(queue.next(Lane::Write).is_none() && queue.next(Lane::Read).is_none());
    }
}
